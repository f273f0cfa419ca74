use super::*;
use crate::wr::{PostError, RecvWr, SendFlags, SendOp, SendWr};
use proptest::prelude::*;
use std::collections::VecDeque;
use xroce_wire::{ImmData, Lkey, Rkey};

const CAP: QpCap = QpCap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 3, max_recv_sge: 3, max_inline_data: 40 };
const NO_LIMIT: u64 = u64::MAX;

fn sge(addr: u64, length: u32) -> Sge {
    Sge { addr, length, lkey: Lkey(addr as u32 ^ 0x5555) }
}

fn wr<'a>(id: u64, op: SendOp, sges: &'a [Sge]) -> SendWr<'a> {
    SendWr { wr_id: WrId(id), op, flags: SendFlags::SIGNALED, sges, inline: &[] }
}

fn inline<'a>(id: u64, op: SendOp, pieces: &'a [&'a [u8]]) -> SendWr<'a> {
    SendWr { wr_id: WrId(id), op, flags: SendFlags::INLINE, sges: &[], inline: pieces }
}

/// What an entry should read as.
#[derive(Debug, Clone, PartialEq)]
struct Want {
    wr_id: WrId,
    op: SendOp,
    flags: SendFlags,
    length: u32,
    sges: Vec<Sge>,
    inline: Option<Vec<u8>>,
}

impl Want {
    fn of(wqe: &SendWqe<'_>) -> Want {
        Want {
            wr_id: wqe.wr_id(),
            op: wqe.op(),
            flags: wqe.flags(),
            length: wqe.length(),
            sges: wqe.sges().to_vec(),
            inline: wqe.inline().map(<[u8]>::to_vec),
        }
    }
}

const VA: u64 = 0xFEDC_BA98_7654_3210;
const RKEY: Rkey = Rkey(0xFEDC_BA98);
const OPS: [SendOp; 8] = [
    SendOp::Send,
    SendOp::SendImm(ImmData(0x8000_0001)),
    SendOp::SendInv(RKEY),
    SendOp::Write { va: VA, rkey: RKEY },
    SendOp::WriteImm { va: VA, rkey: RKEY, imm: ImmData(u32::MAX) },
    SendOp::Read { va: VA, rkey: RKEY },
    SendOp::CmpSwap { va: VA, rkey: RKEY, compare: 1 << 63, swap: u64::MAX - 1 },
    SendOp::FetchAdd { va: VA, rkey: RKEY, add: u64::MAX },
];

#[test]
fn every_operation_reads_as_it_was_posted() {
    let (mut post, mut take) = send_queue(QpType::Rc, &CAP);
    let eight = [sge(0x1000, 8)];
    for (id, op) in OPS.into_iter().enumerate() {
        let flags = SendFlags::from_bits_retain(id as u32 & 7);
        post.post(&SendWr { wr_id: WrId(id as u64), op, flags, sges: &eight, inline: &[] }, NO_LIMIT).unwrap();
        let pos = take.take().unwrap();
        let want = Want { wr_id: WrId(id as u64), op, flags, length: 8, sges: eight.to_vec(), inline: None };
        assert_eq!(Want::of(&take.wqe(pos)), want);
        take.retire();
    }
}

/// Report H18.
#[test]
fn inline_bytes_are_gathered_at_post() {
    let (mut post, mut take) = send_queue(QpType::Uc, &CAP);
    let mut first = *b"seventeen bytes! ";
    post.post(&inline(1, SendOp::Write { va: 1, rkey: RKEY }, &[&first, b"", b"more"]), NO_LIMIT).unwrap();
    first.fill(0);
    post.post(&inline(2, SendOp::Send, &[]), NO_LIMIT).unwrap();
    let (a, b) = (take.take().unwrap(), take.take().unwrap());
    assert_eq!(take.wqe(a).inline(), Some(&b"seventeen bytes! more"[..]));
    assert_eq!((take.wqe(a).length(), take.wqe(a).sges().len()), (21, 0));
    assert_eq!(take.wqe(b).inline(), Some(&[][..]));
}

#[track_caller]
fn refused(kind: QpType, wr: &SendWr<'_>, max_msg: u64, want: PostError, text: &str) {
    let (mut post, mut take) = send_queue(kind, &CAP);
    assert_eq!(post.post(wr, max_msg), Err(want));
    assert_eq!(want.to_string(), text);
    assert_eq!(take.take(), None, "whole or nothing");
    post.post(&inline(7, SendOp::Send, &[b"next"]), NO_LIMIT).unwrap();
    let pos = take.take().unwrap();
    assert_eq!(take.wqe(pos).wr_id(), WrId(7));
}

#[test]
fn too_many_sges_are_refused() {
    let want = PostError::TooManySges { given: 4, max: 3 };
    refused(QpType::Rc, &wr(0, SendOp::Send, &[sge(0, 1); 4]), NO_LIMIT, want, "4 SGEs; this queue takes 3");
}

/// Report H18.
#[test]
fn inline_longer_than_the_capacity_is_refused() {
    let want = PostError::InlineTooLong { length: 41, max: 40 };
    let text = "41 inline bytes; this queue takes 40 (max_inline_data)";
    refused(QpType::Rc, &inline(0, SendOp::Send, &[&[0; 40], &[0]]), NO_LIMIT, want, text);
}

#[test]
fn reads_and_atomics_are_never_inline() {
    for (op, name) in [(OPS[5], "RDMA_READ"), (OPS[6], "ATOMIC_CMP_AND_SWP"), (OPS[7], "ATOMIC_FETCH_AND_ADD")] {
        let text = format!("{name} cannot be inline: its SGEs receive data");
        let want = PostError::InlineNotAllowed { op: name };
        refused(QpType::Rc, &inline(0, op, &[&[0; 8]]), NO_LIMIT, want, &text);
    }
}

#[test]
fn inline_bytes_and_sges_do_not_mix() {
    let sges = [sge(0, 1)];
    let both = SendWr { sges: &sges, ..inline(0, SendOp::Send, &[b"x"]) };
    let text = "a request has 1 SGEs and 1 inline pieces; INLINE takes pieces only, without it SGEs only";
    refused(QpType::Rc, &both, NO_LIMIT, PostError::InlineMixed { sges: 1, pieces: 1 }, text);
    let unflagged = SendWr { flags: SendFlags::empty(), ..inline(0, SendOp::Send, &[b"x"]) };
    let text = "a request has 0 SGEs and 1 inline pieces; INLINE takes pieces only, without it SGEs only";
    refused(QpType::Rc, &unflagged, NO_LIMIT, PostError::InlineMixed { sges: 0, pieces: 1 }, text);
}

/// Report H25.
#[test]
fn messages_end_at_the_limit_of_the_port_and_of_the_protocol() {
    let over = [sge(0, 1 << 20), sge(0, 1)];
    let want = PostError::MessageTooLong { length: (1 << 20) + 1, max: 1 << 20 };
    let text = "the message has 1048577 bytes; the limit is 1048576";
    refused(QpType::Rc, &wr(0, SendOp::Send, &over), 1 << 20, want, text);
    let wraps = [sge(0, u32::MAX), sge(0, u32::MAX), sge(0, 3)];
    let want = PostError::MessageTooLong { length: (1 << 33) + 1, max: 1 << 31 };
    let text = "the message has 8589934593 bytes; the limit is 2147483648";
    refused(QpType::Rc, &wr(0, OPS[5], &wraps), NO_LIMIT, want, text);
}

#[test]
fn a_message_of_2_31_bytes_is_legal() {
    let (mut post, mut take) = send_queue(QpType::Rc, &CAP);
    post.post(&wr(0, SendOp::Send, &[sge(0, 1 << 30), sge(0, 1 << 30)]), NO_LIMIT).unwrap();
    let pos = take.take().unwrap();
    assert_eq!(take.wqe(pos).length(), 1 << 31);
}

#[test]
fn atomics_take_one_sge_of_eight_bytes() {
    for (sges, length) in [(vec![], 0), (vec![sge(0, 4)], 4), (vec![sge(0, 16)], 16), (vec![sge(0, 4); 2], 8)] {
        let want = PostError::BadAtomicSge { op: "ATOMIC_FETCH_AND_ADD", sges: sges.len(), length };
        let text =
            format!("ATOMIC_FETCH_AND_ADD takes one SGE of 8 bytes; given {} with {length} bytes in all", sges.len());
        refused(QpType::Rc, &wr(0, OPS[7], &sges), NO_LIMIT, want, &text);
    }
}

#[test]
fn uc_refuses_what_only_rc_has() {
    for op in [OPS[2], OPS[5], OPS[6], OPS[7]] {
        let want = PostError::NotOnThisQp { op: op.name(), kind: QpType::Uc };
        let text = format!("{} does not exist on a UC queue pair", op.name());
        refused(QpType::Uc, &wr(0, op, &[sge(0, 8)]), NO_LIMIT, want, &text);
    }
}

#[test]
fn unknown_flags_are_refused() {
    let wr = SendWr { flags: SendFlags::from_bits_retain(0x12), ..wr(0, SendOp::Send, &[]) };
    refused(QpType::Rc, &wr, NO_LIMIT, PostError::UnknownFlags { bits: 0x10 }, "unknown send flags 0x10");
}

#[test]
fn without_read_resources_reads_and_atomics_are_refused() {
    let (mut post, _take) = send_queue(QpType::Rc, &CAP);
    post.set_max_rd_atomic(0);
    for op in &OPS[5..] {
        let refused = Err(PostError::NoReadAtomic { op: op.name() });
        assert_eq!(post.post(&wr(0, *op, &[sge(0, 8)]), NO_LIMIT), refused);
    }
    post.post(&wr(0, OPS[3], &[sge(0, 8)]), NO_LIMIT).unwrap();
    post.set_max_rd_atomic(1);
    post.post(&wr(0, OPS[5], &[sge(0, 8)]), NO_LIMIT).unwrap();
}

#[test]
fn a_full_queue_says_its_depth_and_takes_one_more_after_each_retire() {
    let (mut post, mut take) = send_queue(QpType::Rc, &CAP);
    let sges = [sge(1, 1); 3];
    let write = |id| wr(id, OPS[4], &sges);
    (0..4).for_each(|id| post.post(&write(id), NO_LIMIT).unwrap());
    let full = Err(PostError::QueueFull { depth: 4 });
    assert_eq!(post.post(&write(4), NO_LIMIT), full);
    let first = take.take().unwrap();
    assert_eq!(post.post(&write(4), NO_LIMIT), full, "taken is not retired");
    assert_eq!(take.wqe(first).wr_id(), WrId(0));
    take.retire();
    post.post(&write(4), NO_LIMIT).unwrap();
    assert_eq!(post.post(&write(5), NO_LIMIT), full);
}

#[test]
fn a_queue_of_depth_zero_is_always_full() {
    let none = QpCap { max_send_wr: 0, max_recv_wr: 0, max_send_sge: 0, max_recv_sge: 0, max_inline_data: 0 };
    let (mut post, mut take) = send_queue(QpType::Uc, &none);
    assert_eq!(post.post(&wr(0, SendOp::Send, &[]), NO_LIMIT), Err(PostError::QueueFull { depth: 0 }));
    assert!(take.take().is_none() && !take.has_more());
    let (mut post, take) = recv_queue(&none);
    let recv = RecvWr { wr_id: WrId(0), sges: &[] };
    assert_eq!(post.post(&recv), Err(PostError::QueueFull { depth: 0 }));
    assert!(take.front().is_none());
}

#[test]
#[should_panic(expected = "entry 0 is not between 1 and 1")]
fn a_retired_entry_cannot_be_read() {
    let (mut post, mut take) = send_queue(QpType::Rc, &CAP);
    post.post(&wr(0, SendOp::Send, &[]), NO_LIMIT).unwrap();
    let pos = take.take().unwrap();
    take.retire();
    let _ = take.wqe(pos);
}

#[test]
fn retiring_more_than_was_taken_changes_nothing() {
    let (mut post, mut take) = send_queue(QpType::Rc, &CAP);
    take.retire();
    post.post(&wr(3, SendOp::Send, &[]), NO_LIMIT).unwrap();
    take.retire();
    assert!(take.has_more());
    let pos = take.take().unwrap();
    assert_eq!((take.wqe(pos).wr_id(), take.taken()), (WrId(3), 1));
}

#[test]
fn reset_forgets_taken_and_posted_and_goes_on() {
    let (mut post, mut take) = send_queue(QpType::Rc, &CAP);
    for round in 0..50 {
        for id in 0..4 {
            post.post(&wr(id, OPS[id as usize + 1], &[sge(0, 8)]), NO_LIMIT).unwrap();
        }
        (0..round % 5).for_each(|_| assert!(take.take().is_some()));
        take.reset();
        assert!(take.take().is_none() && take.taken() == 0);
    }
    let (mut post, mut take) = recv_queue(&CAP);
    for id in 0..30 {
        post.post(&RecvWr { wr_id: WrId(id), sges: &[sge(0, 1)] }).unwrap();
        if id % 3 == 0 {
            take.reset();
            assert_eq!(take.len(), 0);
        }
    }
}

#[test]
fn a_recv_says_how_much_it_takes() {
    let (mut post, mut take) = recv_queue(&CAP);
    let sges = [sge(1, u32::MAX), sge(2, u32::MAX), sge(3, 7)];
    post.post(&RecvWr { wr_id: WrId(1), sges: &sges }).unwrap();
    post.post(&RecvWr { wr_id: WrId(2), sges: &[] }).unwrap();
    let too_many = RecvWr { wr_id: WrId(3), sges: &[sge(0, 1); 4] };
    assert_eq!(post.post(&too_many), Err(PostError::TooManySges { given: 4, max: 3 }));
    assert_eq!(take.len(), 2);
    let front = take.front().unwrap();
    assert_eq!((front.wr_id, front.length, front.sges()), (WrId(1), 2 * u64::from(u32::MAX) + 7, &sges[..]));
    take.pop();
    assert_eq!(take.front().map(|front| (front.wr_id, front.length)), Some((WrId(2), 0)));
    take.pop();
    take.pop();
    assert!(take.is_empty() && take.front().is_none());
}

/// 10,000 QPs of this size should cost 25 MB of queues, not more.
#[test]
fn a_small_qp_stays_below_two_and_a_half_kib() {
    let cap = QpCap { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
    let (sq, rq) = (send_queue(QpType::Rc, &cap).0.memory(), recv_queue(&cap).0.memory());
    // Two reference counts each.
    let total = sq + rq + 2 * 16;
    assert!(total < 2_560, "{sq} for the send queue, {rq} for the receive queue");
}

fn any_sges() -> impl Strategy<Value = Vec<Sge>> {
    proptest::collection::vec((any::<u64>(), 0u32..5_000).prop_map(|(addr, length)| sge(addr, length)), 0..=3)
}

fn any_send() -> impl Strategy<Value = Want> {
    let flags = (0u32..8).prop_map(SendFlags::from_bits_retain);
    let data = prop_oneof![
        any_sges().prop_map(|sges| (sges, None)),
        proptest::collection::vec(any::<u8>(), 0..=40).prop_map(|bytes| (vec![], Some(bytes))),
    ];
    (any::<u64>(), 0usize..8, flags, data).prop_map(|(id, op, flags, (mut sges, mut inline))| {
        let op = OPS[op];
        if op.is_read_or_atomic() {
            inline = None;
        }
        if op.is_atomic() {
            sges = vec![sge(id, 8)];
        }
        let length = sges.iter().map(|sge| sge.length).sum::<u32>() + inline.as_ref().map_or(0, |b| b.len() as u32);
        let flags = if inline.is_some() { flags | SendFlags::INLINE } else { flags };
        Want { wr_id: WrId(id), op, flags, length, sges, inline }
    })
}

#[derive(Debug, Clone)]
enum Step {
    Post(Want),
    Take,
    Retire,
    Reset,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => any_send().prop_map(Step::Post),
        6 => Just(Step::Take),
        6 => Just(Step::Retire),
        1 => Just(Step::Reset),
    ]
}

proptest! {
    /// The ring against two queues that cannot wrap: posted and not taken, taken and not retired.
    #[test]
    fn a_send_queue_is_a_queue(depth in 1u32..9, steps in proptest::collection::vec(any_step(), 1..200)) {
        let (mut post, mut take) = send_queue(QpType::Rc, &QpCap { max_send_wr: depth, ..CAP });
        let (mut posted, mut taken) = (VecDeque::new(), VecDeque::<(WqePos, Want)>::new());
        for step in steps {
            match step {
                Step::Post(want) => {
                    let bytes = want.inline.clone().unwrap_or_default();
                    let (a, b) = bytes.split_at(bytes.len() / 2);
                    let pieces: &[&[u8]] = if want.inline.is_some() { &[a, b] } else { &[] };
                    let (wr_id, op, flags) = (want.wr_id, want.op, want.flags);
                    let wr = SendWr { wr_id, op, flags, sges: &want.sges, inline: pieces };
                    let full = posted.len() + taken.len() == depth as usize;
                    prop_assert_eq!(post.post(&wr, NO_LIMIT).is_err(), full);
                    if !full {
                        posted.push_back(want);
                    }
                }
                Step::Take => {
                    prop_assert_eq!(take.has_more(), !posted.is_empty());
                    let pos = take.take();
                    prop_assert_eq!(pos.is_some(), !posted.is_empty());
                    taken.extend(pos.zip(posted.pop_front()));
                }
                Step::Retire => {
                    take.retire();
                    taken.pop_front();
                }
                Step::Reset => {
                    take.reset();
                    posted.clear();
                    taken.clear();
                }
            }
            // Whatever was written since, entries that are taken read as they were posted.
            for (pos, want) in &taken {
                prop_assert_eq!(&Want::of(&take.wqe(*pos)), want);
            }
        }
    }

    #[test]
    fn a_recv_queue_is_a_queue(
        depth in 1u32..9,
        steps in proptest::collection::vec(proptest::option::weighted(0.6, any_sges()), 1..200),
    ) {
        let (mut post, mut take) = recv_queue(&QpCap { max_recv_wr: depth, ..CAP });
        let mut model = VecDeque::new();
        for (id, step) in steps.into_iter().enumerate() {
            let wr_id = WrId(id as u64);
            match step {
                Some(sges) => {
                    let full = model.len() == depth as usize;
                    prop_assert_eq!(post.post(&RecvWr { wr_id, sges: &sges }).is_err(), full);
                    if !full {
                        model.push_back((wr_id, sges));
                    }
                }
                None => {
                    take.pop();
                    model.pop_front();
                }
            }
            prop_assert_eq!(take.len() as usize, model.len());
            let front = take.front().map(|wqe| (wqe.wr_id, wqe.sges().to_vec()));
            prop_assert_eq!(front.as_ref(), model.front());
        }
    }
}

/// A poster and a shard on two threads; every entry says in its content who it is.
#[test]
fn two_threads_see_whole_entries_in_order() {
    const COUNT: u64 = if cfg!(miri) { 200 } else { 20_000 };
    let (mut post, mut take) = send_queue(QpType::Rc, &QpCap { max_send_wr: 5, ..CAP });
    let poster = std::thread::spawn(move || {
        for id in 0..COUNT {
            let sges = [sge(id, id as u32 & 0xFFF); 3];
            let text = id.to_le_bytes();
            let pieces: [&[u8]; 3] = [&text, &text, &text];
            let op = OPS[id as usize % 5];
            let request = if id % 3 == 0 {
                inline(id, op, &pieces[..1 + id as usize / 3 % 3])
            } else {
                wr(id, op, &sges[..id as usize % 4])
            };
            while post.post(&request, NO_LIMIT).is_err() {
                std::thread::yield_now();
            }
        }
    });
    let mut open = VecDeque::new();
    let mut next = 0;
    while next < COUNT || !open.is_empty() {
        if let Some(pos) = take.take() {
            open.push_back((next, pos));
            next += 1;
        } else {
            std::thread::yield_now();
        }
        // Some stay open for a while, as requests that wait for their ACK do.
        if open.len() > 3 || next == COUNT || next % 7 == 0 {
            let Some((id, pos)) = open.pop_front() else { continue };
            let wqe = take.wqe(pos);
            assert_eq!((wqe.wr_id(), wqe.op()), (WrId(id), OPS[id as usize % 5]));
            assert!(wqe.sges().iter().all(|got| *got == sge(id, id as u32 & 0xFFF)));
            let bytes = wqe.inline().unwrap_or(&[]);
            assert!(bytes.chunks(8).all(|chunk| chunk == id.to_le_bytes()));
            let pieces = if id % 3 == 0 { 1 + id as usize / 3 % 3 } else { id as usize % 4 };
            assert_eq!(wqe.sges().len() + bytes.len() / 8, pieces);
            take.retire();
        }
    }
    poster.join().unwrap();
}
