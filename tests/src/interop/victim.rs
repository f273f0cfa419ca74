//! A process of xroce that is there to be killed: `xroce-victim`. Enters: where the other end is, what to do. Leaves: where its
//! own end is, on standard output; then nothing until it is killed, or its standard input closes.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use xroce::{
    Access, Cq, Device, Lkey, Progress, Psn, Qp, QpEndpoint, RecvWr, Rkey, SendFlags, SendOp, SendWr, Sge, WrId,
};

use super::killed::{self, Doing, LEN, MANY};
use super::{Family, link};
use crate::rxe::Op;

/// PSN of its first packet.
const PSN: u32 = 0x1234;

/// What it is told, word by word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Orders {
    /// The netdev, in the namespace of whoever starts it.
    pub interface: String,
    /// Which of its addresses.
    pub gid_index: u8,
    /// The same, as the connection needs it.
    pub family: Family,
    /// The other end.
    pub there: QpEndpoint,
    /// What to do once connected.
    pub doing: Doing,
    /// Address and rkey of the other end's memory.
    pub source: (u64, u32),
}

impl Orders {
    fn words(&self) -> [String; 7] {
        let (va, rkey) = self.source;
        [
            self.interface.clone(),
            self.gid_index.to_string(),
            format!("{:?}", self.family),
            self.there.to_string(),
            format!("{:?}", self.doing),
            va.to_string(),
            rkey.to_string(),
        ]
    }

    /// The words, read back.
    ///
    /// # Errors
    /// The one that means nothing.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        use Doing::{Nothing, ReadBy, ReadFrom, SendFrom, SendTo};
        let word = |i: usize| words.get(i).ok_or_else(|| format!("word {i} is missing"));
        fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
            text.parse().map_err(|_| format!("{text} is no such number"))
        }
        fn one_of<T: Copy + fmt::Debug>(all: &[T], text: &str) -> Result<T, String> {
            all.iter()
                .copied()
                .find(|one| format!("{one:?}") == text)
                .ok_or_else(|| format!("{text} is none of {all:?}"))
        }
        Ok(Self {
            interface: word(0)?.clone(),
            gid_index: number(word(1)?)?,
            family: one_of(&Family::BOTH, word(2)?)?,
            there: word(3)?.parse().map_err(|error: xroce::ParseQpEndpointError| error.to_string())?,
            doing: one_of(&[Nothing, SendTo, ReadFrom, SendFrom, ReadBy], word(4)?)?,
            source: (number(word(5)?)?, number(word(6)?)?),
        })
    }
}

/// A running `xroce-victim`, connected.
pub struct Victim {
    child: Child,
    /// Its end.
    pub endpoint: QpEndpoint,
    /// Address and rkey of its memory.
    pub memory: (u64, u32),
}

impl Victim {
    /// Starts it in the network namespace of this thread.
    ///
    /// # Panics
    /// It does not come up.
    pub fn start(orders: &Orders) -> Self {
        let mut child = Command::new(program())
            .args(orders.words())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("xroce-victim can be run");
        let mut line = String::new();
        let _ = BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line);
        let said: Vec<&str> = line.split_whitespace().collect();
        let [endpoint, va, rkey] = said[..] else { panic!("xroce-victim said {line:?}") };
        let number = "it says numbers";
        Self {
            child,
            endpoint: endpoint.parse().expect("it says where it is"),
            memory: (va.parse().expect(number), rkey.parse().expect(number)),
        }
    }

    /// SIGKILL; returns when the kernel has closed all that it held.
    ///
    /// # Panics
    /// It had ended before.
    pub fn kill(mut self) {
        assert_eq!(self.child.try_wait().expect("our own child"), None, "it lives until now");
        self.child.kill().expect("our own child");
        self.child.wait().expect("our own child");
    }
}

/// Beside the program that runs now; a test lies one folder deeper.
fn program() -> PathBuf {
    let here = std::env::current_exe().expect("this program has a path");
    let beside = here.parent().expect("a folder");
    let profile = if beside.ends_with("deps") { beside.parent().expect("target/debug") } else { beside };
    profile.join("xroce-victim")
}

/// The program: does as its arguments say until it is killed, or its standard input closes.
pub fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let orders = match Orders::parse(&words) {
        Ok(orders) => orders,
        Err(why) => {
            eprintln!("usage: xroce-victim INTERFACE GID_INDEX V4|V6 ENDPOINT DOING VA RKEY: {why}");
            return ExitCode::from(2);
        }
    };
    thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    live(&orders)
}

fn live(orders: &Orders) -> ! {
    let context = Device::builder(&orders.interface).progress(Progress::Event).open().expect("the netdev");
    let pd = context.alloc_pd().expect("a protection domain");
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let memory = pd.reg_mr(vec![0; LEN as usize], rights).expect("memory");
    let cqs = [(); 2].map(|()| context.create_cq(2 * MANY).expect("a CQ"));
    let spec = killed::spec(orders.family);
    let qp = link::our_qp(&pd, &cqs, &spec);
    let sge = Sge { addr: memory.addr(), length: LEN, lkey: Lkey(memory.lkey().0) };
    qp.connect(&orders.there, &spec.connect_options(orders.gid_index, PSN)).expect("connected");
    (0..MANY).for_each(|_| recv(&qp, sge));
    let address = context.query_gid(orders.gid_index).expect("a GID");
    let here = QpEndpoint { gid: address, qpn: qp.qpn(), psn: Psn::new(PSN) };
    println!("{here} {} {}", memory.addr(), memory.rkey().0);
    io::stdout().flush().expect("somebody listens");

    let work = orders.doing.of_the_victim(orders.source);
    if let Some(op) = work {
        (0..MANY).for_each(|_| send(&qp, op, sge));
    }
    loop {
        take(&cqs[0], || work.into_iter().for_each(|op| send(&qp, op, sge)));
        take(&cqs[1], || recv(&qp, sge));
        thread::sleep(Duration::from_micros(100));
    }
}

/// One more for each that is done.
fn take(cq: &Cq, again: impl Fn()) {
    let done: Vec<_> = cq.drain().collect();
    done.iter().for_each(|wc| {
        assert!(wc.status.is_success(), "{wc:?}");
        again();
    });
}

fn recv(qp: &Qp, sge: Sge) {
    qp.post_recv(&RecvWr { wr_id: WrId(0), sges: &[sge] }).expect("room");
}

fn send(qp: &Qp, op: Op, sge: Sge) {
    let op = match op {
        Op::Read { va, rkey } => SendOp::Read { va, rkey: Rkey(rkey) },
        _ => SendOp::Send,
    };
    let wr = SendWr { wr_id: WrId(0), op, flags: SendFlags::SIGNALED, sges: &[sge], inline: &[] };
    qp.post_send(&wr).expect("room");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_are_written() {
        let there = "xroce-qp1:00000000000000000000ffffc0000201:012345:fedcba".parse().unwrap();
        let orders = Orders {
            interface: "x0".into(),
            gid_index: 3,
            family: Family::V6,
            there,
            doing: Doing::ReadBy,
            source: (1 << 40, u32::MAX),
        };
        assert_eq!(Orders::parse(&orders.words()), Ok(orders.clone()));
        for i in 1..7 {
            let mut words = orders.words();
            words[i] = "x".into();
            assert!(Orders::parse(&words).is_err() && Orders::parse(&words[..i]).is_err(), "word {i}");
        }
    }
}
