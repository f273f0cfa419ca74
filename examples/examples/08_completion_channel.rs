//! 8. Sleeping until something completes.
//!
//! A completion channel is a file descriptor that becomes readable. The rule that loses no wake-up: arm, poll once more, wait.
//! The device runs in event mode here: nobody burns CPU time while nothing happens.

use std::time::{Duration, Instant};
use xroce::port::sim::{PipeConfig, loop_pair};
use xroce::{CompChannel, Cq, Device, Progress, QpInitAttr, QpType, RecvWr, SendFlags, SendOp, SendWr, Wc, WrId};
use xroce_examples::{Outcome, device_argument};

/// Waits for the next completion without polling in vain.
fn next(channel: &CompChannel, cq: &Cq) -> Result<Wc, Box<dyn std::error::Error>> {
    loop {
        // 1. Arm: the next completion will make the channel readable.
        cq.req_notify(false)?;
        // 2. Poll once more: what came before the arming makes no event.
        if let Some(wc) = cq.poll_one()? {
            return Ok(wc);
        }
        // 3. Wait. The descriptor of the channel could as well be given to epoll or an async runtime.
        channel.get_cq_event(Some(Duration::from_secs(10)))?.ok_or("nothing within ten seconds")?;
    }
}

fn main() -> Outcome {
    let device = match device_argument() {
        Some(name) => Device::builder(&name).progress(Progress::Event).open()?,
        None => {
            let (port, _other_end) = loop_pair(&PipeConfig::default())?;
            Device::on_port(Box::new(port), &["192.0.2.1".parse()?]).progress(Progress::Event).open()?
        }
    };
    let channel = device.create_comp_channel()?;
    let cq = device.create_cq_on(64, &channel)?;
    let pd = device.alloc_pd()?;
    let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq))?;

    // A queue pair may be connected to itself: its packets never leave the machine.
    let gid_index = device.default_gid().ok_or("the device has no address")?.index;
    let options = xroce::ConnectOptions { gid_index, ..Default::default() };
    qp.connect(&qp.endpoint(&options)?, &options)?;

    let start = Instant::now();
    std::thread::scope(|scope| {
        // Somebody else sends after a while.
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            let flags = SendFlags::INLINE;
            let wr = SendWr { wr_id: WrId(1), op: SendOp::Send, flags, sges: &[], inline: &[] };
            qp.post_send(&wr).expect("the queue pair is connected");
        });
        qp.post_recv(&RecvWr { wr_id: WrId(7), sges: &[] })?;
        let wc = next(&channel, &cq)?;
        println!("slept for {:?}, then work request {} completed: {}", start.elapsed(), wc.wr_id, wc.status);
        Ok(())
    })
}
