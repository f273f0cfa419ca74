//! The work requests of one end: as its application remembers them, with how far each is.
//!
//! In: what is posted, what completes, and the queue pair. Out: requests to show, oldest first.

use xroce_transport::qp::QpSnapshot;

use crate::ladder::{Progress, Request};

/// A request as the application remembers it.
struct Posted {
    wr_id: u64,
    op: &'static str,
    len: u32,
    /// Some of it has been on the wire.
    started: bool,
    done: Option<Progress>,
}

/// What an application has posted to a queue pair.
#[derive(Default)]
pub(crate) struct Requests {
    sends: Vec<Posted>,
    recvs: Vec<Posted>,
}

impl Requests {
    pub(crate) fn post_send(&mut self, wr_id: u64, op: &'static str, len: u32) {
        self.sends.push(Posted { wr_id, op, len, started: false, done: None });
    }

    pub(crate) fn post_recv(&mut self, wr_id: u64, len: u32) {
        self.recvs.push(Posted { wr_id, op: "RECV", len, started: false, done: None });
    }

    /// The completion of a request: `recv` tells its queue, `status` the verbs status in words.
    pub(crate) fn completed(&mut self, recv: bool, wr_id: u64, status: String, success: bool) {
        let queue = if recv { &mut self.recvs } else { &mut self.sends };
        if let Some(request) = queue.iter_mut().find(|r| r.wr_id == wr_id && r.done.is_none()) {
            request.done = Some(Progress::Done { status, success });
        }
    }

    /// RESET: what is not completed never will be.
    pub(crate) fn forget(&mut self) {
        for request in self.sends.iter_mut().chain(&mut self.recvs) {
            request.done.get_or_insert(Progress::Forgotten);
        }
    }

    /// Remembers what has been on the wire, so that a request without a completion is known to be done.
    pub(crate) fn look(&mut self, qp: &QpSnapshot) {
        for request in self.sends.iter_mut().filter(|r| !r.started) {
            request.started = qp.started.iter().any(|s| s.wr_id.0 == request.wr_id);
        }
    }

    /// The send queue and the receive queue, while the queue pair is `qp`.
    pub(crate) fn shown(&self, qp: &QpSnapshot) -> (Vec<Request>, Vec<Request>) {
        let sends = self.sends.iter().map(|request| {
            request.shown(match qp.started.iter().find(|s| s.wr_id.0 == request.wr_id) {
                Some(s) => Progress::Started {
                    first: s.first_psn.value(),
                    last: s.first_psn.add(s.psns - 1).value(),
                    psns: s.psns,
                    sent: s.sent,
                    acked: s.acked,
                },
                None if request.started => Progress::Done { status: "done, no CQE".into(), success: true },
                None => Progress::Posted,
            })
        });
        let open = qp.responder.open_message.is_some();
        let first_open = self.recvs.iter().position(|r| r.done.is_none());
        let recvs = self.recvs.iter().enumerate().map(|(i, request)| {
            request.shown(if open && Some(i) == first_open { Progress::InUse } else { Progress::Posted })
        });
        (sends.collect(), recvs.collect())
    }
}

impl Posted {
    fn shown(&self, open: Progress) -> Request {
        let progress = self.done.clone().unwrap_or(open);
        Request { wr_id: self.wr_id, op: self.op, len: self.len, progress }
    }
}
