//! 9. Talking to the Linux kernel's RoCE.
//!
//! The peer is an unmodified `ibv_rc_pingpong` of rdma-core, on a kernel `rdma_rxe` device or a hardware NIC:
//!
//! ```text
//! peer$ ibv_rc_pingpong -d rxe0 -g 1
//! here# cargo run --example 09_talk_to_rxe -- --device eth0 192.0.2.2
//! ```
//!
//! The two tell each other their queue pairs over TCP, in the text form of that program: LID, QP number, PSN and GID in
//! hexadecimal, 53 bytes with the final zero. Then they send 4096 bytes to and fro a thousand times. Without arguments a thread
//! of this example plays the peer.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;
use xroce::{Context, Psn, QpEndpoint, QpType, Qpn, RecvWr, SendFlags, SendOp, SendWr, WcOpcode, WrId};
use xroce_examples::{End, Outcome, device_argument, two_devices};

const PORT: u16 = 18515;
const BYTES: usize = 4096;
const ROUNDS: u32 = 1000;
/// "0000:000000:000000:" and 32 digits of GID, and a zero.
const MESSAGE: usize = 52;

fn tell(socket: &mut TcpStream, me: &QpEndpoint) -> std::io::Result<()> {
    let gid: String = me.gid.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let text = format!("0000:{:06x}:{:06x}:{gid}\0", me.qpn.value(), me.psn.value());
    socket.write_all(text.as_bytes())
}

fn hear(socket: &mut TcpStream) -> Result<QpEndpoint, Box<dyn std::error::Error>> {
    let mut message = [0; MESSAGE];
    socket.read_exact(&mut message)?;
    let text = std::str::from_utf8(&message[..MESSAGE - 1])?;
    let fields: Vec<&str> = text.split(':').collect();
    let [_lid, qpn, psn, gid] = fields[..] else { return Err(format!("not from a pingpong program: {text:?}").into()) };
    let gid = xroce::Gid(u128::from_str_radix(gid, 16)?.to_be_bytes());
    Ok(QpEndpoint { gid, qpn: Qpn::new(u32::from_str_radix(qpn, 16)?), psn: Psn::new(u32::from_str_radix(psn, 16)?) })
}

/// The side that sends first and the side that answers differ only in that.
fn play(end: &End, sends_first: bool) -> Outcome {
    let (mut sent, mut received) = (0, 0);
    let sges = [end.mr.sge(0..BYTES)?];
    let send = || {
        let flags = SendFlags::SIGNALED;
        end.qp.post_send(&SendWr { wr_id: WrId(2), op: SendOp::Send, flags, sges: &sges, inline: &[] })
    };
    if sends_first {
        send()?;
    }
    while sent < ROUNDS || received < ROUNDS {
        if end.wait()?.opcode != WcOpcode::Recv {
            sent += 1;
            continue;
        }
        received += 1;
        end.qp.post_recv(&RecvWr { wr_id: WrId(1), sges: &sges })?;
        if !sends_first || received < ROUNDS {
            send()?;
        }
    }
    Ok(())
}

/// An end with receives posted before the peer can send.
fn end(device: &Context) -> Result<End, Box<dyn std::error::Error>> {
    let end = End::new(device, QpType::Rc, BYTES)?;
    end.qp.to_init(&end.options())?;
    for _ in 0..64 {
        end.qp.post_recv(&RecvWr { wr_id: WrId(1), sges: &[end.mr.sge(0..BYTES)?] })?;
    }
    Ok(end)
}

fn client(device: &Context, mut socket: TcpStream) -> Outcome {
    let end = end(device)?;
    let options = end.options();
    tell(&mut socket, &end.qp.endpoint(&options)?)?;
    let peer = hear(&mut socket)?;
    println!("the peer is QP {} at {}", peer.qpn, peer.gid);
    end.qp.connect(&peer, &options)?;
    socket.write_all(b"done\0")?;

    let start = Instant::now();
    play(&end, true)?;
    println!("{ROUNDS} rounds of {BYTES} bytes, {:?} each", start.elapsed() / ROUNDS);
    Ok(())
}

fn server(device: &Context, mut socket: TcpStream) -> Outcome {
    let end = end(device)?;
    let options = end.options();
    let peer = hear(&mut socket)?;
    end.qp.connect(&peer, &options)?;
    tell(&mut socket, &end.qp.endpoint(&options)?)?;
    socket.read_exact(&mut [0; 5])?;
    play(&end, false)
}

fn main() -> Outcome {
    let (here, there) = two_devices()?;
    let host = std::env::args().nth(3).filter(|_| device_argument().is_some());
    if let Some(host) = host {
        return client(&here, TcpStream::connect((host.as_str(), PORT))?);
    }
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    std::thread::scope(|scope| {
        let peer = scope.spawn(move || {
            let served = listener.accept().map_err(Into::into).and_then(|(socket, _)| server(&there, socket));
            served.map_err(|error| error.to_string())
        });
        client(&here, TcpStream::connect(address)?)?;
        peer.join().map_err(|_| "the peer panicked")??;
        Ok(())
    })
}
