//! The control side of applications: connecting, state changes, keys, failures of whole machines.
//!
//! In: the steps of the plan. Out: calls of the transport's control doors, and a model that knows of them.

use std::sync::Arc;

use xroce_transport::memory::Access;
use xroce_transport::qp::QpInit;
use xroce_transport::qp::state::{AddressVector, QpAttr, QpState, QpType};
use xroce_transport::wr::QpCap;
use xroce_transport::{Instant, PathId, QpPath};
use xroce_wire::Psn;

use crate::end::{Grant, Slot};
use crate::generate::{INLINE_MAX, OWN_WORDS};
use crate::model::{Check, Flow, Limits, Rule, broken};
use crate::node::Node;
use crate::plan::{Act, Area, Change, Rereg, Tune};
use crate::world::{Due, World};

/// PSNs between the first ones of two connections of the same queue pairs: late packets of the one miss the other.
const PSN_STEP: u32 = 0x30_0000;

/// What a queue pair lets its peer do, unless that is taken back.
const ALL_RIGHTS: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);

impl World<'_> {
    /// Carries out a step of the plan.
    pub(crate) fn act(&mut self, index: usize) -> Check {
        let step = &self.plan.steps[index];
        if !matches!(step.act, Act::Post { .. }) {
            self.trace.line(self.now, || format!("step {}: {:?}", step.id, step.act));
        }
        match step.act {
            Act::Post { end, .. } => {
                let end = end.conn * 2 + end.side;
                self.ends[end].todo.push_back(index);
                self.work(end).map(|_| ())
            }
            Act::Change { end, to } => self.change(end.conn * 2 + end.side, to),
            Act::Rekey { end, area } => self.rekey(end.conn * 2 + end.side, area),
            Act::Rereg { end, area, what } => self.rereg(end.conn * 2 + end.side, area, what),
            Act::Tune { end, tune } => self.tune(end.conn * 2 + end.side, tune),
            Act::Rights { end } => self.rights(end.conn * 2 + end.side),
            Act::Reconnect { conn } => self.reconnect(conn),
            Act::Restart { node, down_ns } => self.restart(node, down_ns),
        }
    }

    fn sides(&self, conn: usize) -> std::ops::Range<usize> {
        conn * 2..conn * 2 + self.plan.conns[conn].ends.len()
    }

    /// Makes the queue pairs of a connection, or takes those that are in RESET, and moves them to RTS.
    pub(crate) fn connect(&mut self, conn: usize) -> Check {
        for end in self.sides(conn) {
            if self.ends[end].handle.is_none() {
                self.create(end)?;
            }
        }
        for end in conn * 2..conn * 2 + 2 {
            let flow = self.new_flow(end);
            if end < self.flows.len() { self.flows[end] = flow } else { self.flows.push(flow) }
        }
        for end in self.sides(conn) {
            for attr in [self.init_attr(), self.rtr_attr(end), self.rts_attr(end)] {
                self.modify(end, &attr)?;
            }
            self.work(end)?;
        }
        Ok(())
    }

    fn create(&mut self, index: usize) -> Check {
        let end = &mut self.ends[index];
        let node = &mut self.nodes[end.plan.node];
        for area in [Area::Local, Area::Recv, Area::Remote] {
            end.register(index, node, area);
        }
        let cap = QpCap {
            max_send_wr: end.plan.send_depth,
            max_recv_wr: end.slots.len() as u32,
            max_send_sge: 8,
            max_recv_sge: 4,
            max_inline_data: INLINE_MAX,
        };
        let init = QpInit {
            kind: self.plan.conns[end.id.conn].kind,
            pd: node.pd,
            send_cq: Arc::clone(&node.cq),
            recv_cq: Arc::clone(&node.cq),
            cap,
            sq_sig_all: end.plan.sig_all,
        };
        match node.endpoint.create_qp(init) {
            Ok(handle) => {
                node.ends.insert(handle.qpn.value(), index);
                end.handle = Some(handle);
                Ok(())
            }
            Err(error) => broken(Rule::Leak, format!("no queue pair: {error}")),
        }
    }

    fn first_psn(&self, end: usize) -> Psn {
        Psn::new(self.ends[end].plan.psn.wrapping_add(self.ends[end].session.wrapping_mul(PSN_STEP)))
    }

    fn limits(&self, index: usize) -> Limits {
        let end = &self.ends[index];
        let conn = &self.plan.conns[end.id.conn];
        let peer = &self.ends[end.peer];
        let node = &self.plan.nodes[end.plan.node];
        let timer = 4096u64 << end.plan.timeout;
        let ports = [node.tx_ns, self.plan.nodes[peer.plan.node].tx_ns];
        let patience = 8 * self.net.slowest() + 20_000 * ports[0].max(ports[1]);
        Limits {
            kind: conn.kind,
            mtu: conn.mtu.bytes(),
            window: node.window as usize,
            max_rd_atomic: usize::from(end.plan.max_rd_atomic),
            retry_cnt: end.plan.retry_cnt,
            rnr_retry: end.plan.rnr_retry,
            tight_port: node.tx_ns > 0,
            patient: end.plan.timeout == 0 || timer >= patience,
        }
    }

    fn new_flow(&self, index: usize) -> Flow {
        let end = &self.ends[index];
        let conn = &self.plan.conns[end.id.conn];
        let peer = &self.ends[end.peer];
        let limits = self.limits(index);
        let area = peer.buffer.copy(peer.layout.remote.clone());
        let late = conn.by_reset && end.session > 0;
        let words = (0..OWN_WORDS as usize).map(|i| peer.buffer.word(peer.layout.remote.start + 8 * i)).collect();
        let mut flow = Flow::new(limits, self.first_psn(index), area, self.net.is_orderly(), words);
        if late {
            // Packets of the former connection reach the same queue pairs; they miss, but they are answered.
            flow.wire.disturb();
        }
        flow
    }

    fn init_attr(&self) -> QpAttr {
        QpAttr {
            qp_state: Some(QpState::Init),
            pkey_index: Some(0),
            port_num: Some(1),
            qp_access_flags: Some(ALL_RIGHTS),
            ..QpAttr::default()
        }
    }

    fn rtr_attr(&self, index: usize) -> QpAttr {
        let end = &self.ends[index];
        let peer = &self.ends[end.peer];
        let conn = &self.plan.conns[end.id.conn];
        let rc = conn.kind == QpType::Rc;
        QpAttr {
            qp_state: Some(QpState::Rtr),
            ah_attr: Some(AddressVector {
                dgid: self.nodes[peer.plan.node].gid,
                sgid_index: 0,
                hop_limit: 64,
                traffic_class: 0,
                flow_label: 0,
                sl: 0,
                port_num: 1,
                is_global: true,
            }),
            path_mtu: Some(conn.mtu),
            dest_qp_num: peer.handle.as_ref().map(|handle| handle.qpn),
            rq_psn: Some(self.first_psn(end.peer)),
            max_dest_rd_atomic: rc.then_some(end.plan.max_dest_rd_atomic),
            min_rnr_timer: rc.then_some(end.plan.min_rnr_timer),
            ..QpAttr::default()
        }
    }

    fn rts_attr(&self, index: usize) -> QpAttr {
        let end = &self.ends[index];
        let rc = self.plan.conns[end.id.conn].kind == QpType::Rc;
        QpAttr {
            qp_state: Some(QpState::Rts),
            sq_psn: Some(self.first_psn(index)),
            timeout: rc.then_some(end.plan.timeout),
            retry_cnt: rc.then_some(end.plan.retry_cnt),
            rnr_retry: rc.then_some(end.plan.rnr_retry),
            max_rd_atomic: rc.then_some(end.plan.max_rd_atomic),
            ..QpAttr::default()
        }
    }

    pub(crate) fn modify(&mut self, index: usize, attr: &QpAttr) -> Check {
        let end = &self.ends[index];
        let Some(handle) = &end.handle else { return Ok(()) };
        let peer = self.ends[end.peer].plan.node;
        let path = attr.ah_attr.map(|av| QpPath {
            path: PathId(peer as u32),
            src: self.nodes[end.plan.node].gid,
            dst: av.dgid,
            hop_limit: av.hop_limit,
            traffic_class: 0,
            flow_label: 0,
        });
        let (node, qpn) = (end.plan.node, handle.qpn);
        if let Err(error) = self.nodes[node].endpoint.modify_qp(Instant(self.now), qpn, attr, path) {
            return broken(Rule::Leak, format!("end {index} cannot be modified: {error}"));
        }
        self.after(node)
    }

    pub(crate) fn move_to(&mut self, end: usize, state: QpState) -> Check {
        let notify = (state == QpState::Sqd).then_some(true);
        self.modify(end, &QpAttr { qp_state: Some(state), en_sqd_async_notify: notify, ..QpAttr::default() })
    }

    /// What an application does to its queue pair, where the state allows it.
    fn change(&mut self, end: usize, to: Change) -> Check {
        let conn = self.ends[end].id.conn;
        match (to, self.ends[end].state()) {
            (Change::Sqd, QpState::Rts) => {
                self.flows[end].wire.may_ask = true;
                self.move_to(end, QpState::Sqd)
            }
            (Change::Rts, QpState::Sqd) => {
                self.flows[end].wire.drained = false;
                self.move_to(end, QpState::Rts)
            }
            (Change::Rts, QpState::Sqe) => self.recover(end),
            (Change::Err, state) if state != QpState::Reset => {
                self.excuse(conn);
                self.move_to(end, QpState::Err)
            }
            (Change::Reset, state) if state != QpState::Reset => {
                self.excuse(conn);
                self.reset(end)
            }
            _ => Ok(()),
        }
    }

    /// A UC send queue that a local fault stopped goes on; all that was posted has been flushed.
    fn recover(&mut self, end: usize) -> Check {
        let node = self.ends[end].plan.node;
        if !self.nodes[node].alive || self.ends[end].holding {
            return Ok(());
        }
        self.ends[end].holding = true;
        let polled = self.poll(node);
        self.ends[end].holding = false;
        polled?;
        if self.nodes[node].cq.is_overrun() || self.ends[end].state() != QpState::Sqe {
            return Ok(());
        }
        self.check_sends_ended(end)?;
        self.move_to(end, QpState::Rts)?;
        let Some(handle) = &self.ends[end].handle else { return Ok(()) };
        let next = self.nodes[node].endpoint.query_qp(handle.qpn).and_then(|info| info.attr.sq_psn);
        let Some(psn) = next else { return broken(Rule::Segmentation, "a queue pair in RTS without a PSN") };
        self.flows[end].recover(psn)?;
        self.work(end).map(|_| ())
    }

    /// To RESET: what was outstanding never completes, and what was not polled is gone.
    fn reset(&mut self, end: usize) -> Check {
        // The application knows what it has seen so far.
        self.poll(self.ends[end].plan.node)?;
        self.move_to(end, QpState::Reset)?;
        self.check_flow_area(end)?;
        self.check_flow_area(self.ends[end].peer)?;
        self.flows[end].forget();
        self.drop_recvs(end);
        Ok(())
    }

    /// RECVs that never complete.
    fn drop_recvs(&mut self, end: usize) {
        let end = &mut self.ends[end];
        while let Some((_, slot)) = end.recvs.pop_front() {
            end.slots[slot] = Slot::Free;
        }
    }

    /// The connection may fail from now on.
    pub(crate) fn excuse(&mut self, conn: usize) {
        self.excused[conn] = true;
    }

    fn rekey(&mut self, index: usize, area: Area) -> Check {
        let node = self.ends[index].plan.node;
        if !self.nodes[node].alive || self.ends[index].handle.is_none() {
            return Ok(());
        }
        self.excuse(self.ends[index].id.conn);
        self.ends[index].register(index, &self.nodes[node], area);
        self.ends[index].rekeyed[area as usize] = true;
        if area == Area::Remote {
            let peer = self.ends[index].peer;
            self.flows[peer].memory_denied_from = None;
        }
        self.flows[index].wire.may_ask |= area == Area::Local;
        Ok(())
    }

    fn rereg(&mut self, index: usize, area: Area, what: Rereg) -> Check {
        let (node, peer) = (self.ends[index].plan.node, self.ends[index].peer);
        if !self.nodes[node].alive || self.ends[index].handle.is_none() {
            return Ok(());
        }
        self.excuse(self.ends[index].id.conn);
        self.ends[index].reregister(index, &self.nodes[node], area, what)?;
        self.ends[index].rekeyed[area as usize] = true;
        self.flows[index].wire.may_ask |= area == Area::Local;
        if area == Area::Remote {
            let usable = self.ends[index].grants[area as usize] == Grant::default();
            let flow = &mut self.flows[peer];
            flow.memory_denied_from = (!usable).then(|| flow.memory_denied_from.unwrap_or(flow.ops.len()));
        }
        Ok(())
    }

    /// Other attributes for a queue pair that starts nothing at the moment (IBTA 11.2.5.2).
    fn tune(&mut self, index: usize, tune: Tune) -> Check {
        let conn = &self.plan.conns[self.ends[index].id.conn];
        if self.ends[index].state() != QpState::Sqd || conn.kind != QpType::Rc {
            return Ok(());
        }
        let serves = self.ends[self.ends[index].peer].plan.max_dest_rd_atomic;
        let plan = &mut self.ends[index].plan;
        plan.max_rd_atomic = tune.max_rd_atomic.min(serves);
        (plan.timeout, plan.retry_cnt, plan.rnr_retry) = (tune.timeout, tune.retry_cnt, tune.rnr_retry);
        plan.min_rnr_timer = tune.min_rnr_timer;
        let attr = QpAttr {
            qp_state: Some(QpState::Sqd),
            timeout: Some(plan.timeout),
            retry_cnt: Some(plan.retry_cnt),
            rnr_retry: Some(plan.rnr_retry),
            min_rnr_timer: Some(plan.min_rnr_timer),
            max_rd_atomic: Some(plan.max_rd_atomic),
            ..QpAttr::default()
        };
        let limits = self.limits(index);
        self.flows[index].wire.tuned(limits);
        self.modify(index, &attr)
    }

    /// Takes all rights of the peer at the queue pair away, or gives them back.
    fn rights(&mut self, index: usize) -> Check {
        let (state, peer) = (self.ends[index].state(), self.ends[index].peer);
        if !matches!(state, QpState::Rts | QpState::Sqd) {
            return Ok(());
        }
        self.excuse(self.ends[index].id.conn);
        let denied = !self.ends[index].rights_denied;
        self.ends[index].rights_denied = denied;
        self.ends[index].rights_changed = true;
        self.flows[peer].rights_denied_from = denied.then_some(self.flows[peer].ops.len());
        let rights = if denied { Access::empty() } else { ALL_RIGHTS };
        self.modify(index, &QpAttr { qp_state: Some(state), qp_access_flags: Some(rights), ..QpAttr::default() })
    }

    /// Takes both ends down and connects them anew.
    fn reconnect(&mut self, conn: usize) -> Check {
        let sides = self.sides(conn);
        if sides.clone().any(|end| !self.nodes[self.ends[end].plan.node].alive) {
            return Ok(());
        }
        self.excuse(conn);
        for end in sides.clone() {
            self.ends[end].holding = true;
            if !matches!(self.ends[end].state(), QpState::Reset) {
                self.move_to(end, QpState::Err)?;
            }
        }
        for end in sides.clone() {
            self.poll(self.ends[end].plan.node)?;
        }
        for end in sides.clone() {
            self.check_ended(end)?;
            self.check_flow_area(end)?;
        }
        for end in sides.clone() {
            self.take_down(end)?;
            self.ends[end].holding = false;
        }
        // A CQ that overran stays so, and fails whoever completes on it.
        self.excused[conn] = sides.clone().any(|end| self.nodes[self.ends[end].plan.node].cq.is_overrun());
        self.connect(conn)
    }

    /// A queue pair without outstanding work is reset or destroyed.
    fn take_down(&mut self, index: usize) -> Check {
        let by_reset = self.plan.conns[self.ends[index].id.conn].by_reset;
        self.drop_recvs(index);
        if by_reset {
            if self.ends[index].state() != QpState::Reset {
                self.move_to(index, QpState::Reset)?;
            }
        } else {
            self.destroy(index)?;
        }
        self.ends[index].session += 1;
        self.ends[index].rekeyed = [false; 3];
        (self.ends[index].rights_denied, self.ends[index].rights_changed) = (false, false);
        let node = self.ends[index].plan.node;
        for area in [Area::Local, Area::Recv, Area::Remote] {
            if self.ends[index].grants[area as usize] != Grant::default() {
                self.ends[index].register(index, &self.nodes[node], area);
            }
        }
        Ok(())
    }

    pub(crate) fn destroy(&mut self, index: usize) -> Check {
        let end = &mut self.ends[index];
        let node = &mut self.nodes[end.plan.node];
        let Some(handle) = end.handle.take() else { return Ok(()) };
        node.ends.remove(&handle.qpn.value());
        match node.endpoint.destroy_qp(handle.qpn) {
            Ok(()) => Ok(()),
            Err(error) => broken(Rule::Leak, error.to_string()),
        }
    }

    /// A machine dies with everything on it.
    fn restart(&mut self, node: usize, down_ns: u64) -> Check {
        if !self.nodes[node].alive {
            return Ok(());
        }
        self.poll(node)?;
        for end in self.live_ends() {
            let peer = self.ends[end].peer;
            if self.ends[end].plan.node != node && self.ends[peer].plan.node != node {
                continue;
            }
            self.excuse(self.ends[end].id.conn);
            self.check_flow_area(end)?;
            self.flows[end].peer_gone = true;
        }
        self.nodes[node].alive = false;
        self.nodes[node].poll_at = None;
        self.schedule(self.now + down_ns, Due::Revival(node));
        Ok(())
    }

    /// It comes back with nothing, and everybody connects to it again.
    pub(crate) fn revive(&mut self, node: usize) -> Check {
        let life = self.next_life();
        self.trace.line(self.now, || format!("node {node} is back"));
        self.nodes[node] = Node::new(&self.plan.nodes[node], node, self.plan.ipv6, self.now, life);
        self.shared[node].clear();
        for end in 0..self.ends.len() {
            if self.ends[end].plan.node == node {
                self.ends[end].reborn();
                self.flows[end].forget();
            }
        }
        for conn in 0..self.plan.conns.len() {
            if self.sides(conn).any(|end| self.ends[end].plan.node == node) {
                self.reconnect(conn)?;
            }
        }
        self.poll_later(node);
        Ok(())
    }

    /// All faults end: the network, drained queues, scarce RECVs.
    pub(crate) fn heal(&mut self) -> Check {
        self.trace.line(self.now, || "all faults end".to_owned());
        self.healed = true;
        self.net.heal();
        for end in 0..self.ends.len() {
            self.ends[end].recv_depth = self.ends[end].recv_depth.max(4);
            if self.ends[end].handle.is_some() {
                self.change(end, Change::Rts)?;
            }
        }
        for node in 0..self.nodes.len() {
            self.poll_later(node);
        }
        Ok(())
    }
}
