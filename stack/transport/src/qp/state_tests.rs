use super::*;
use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
use QpType::{Rc, Uc};

/// The steps once more, written down from the transition tables of the InfiniBand verbs and not from `TRANSITIONS`:
/// service, from, to, required, optional, each attribute by its letter in [`LETTERS`].
const STEPS: &[(QpType, QpState, QpState, &str, &str)] = &[
    (Rc, Reset, Init, "kpa", ""),
    (Uc, Reset, Init, "kpa", ""),
    (Rc, Init, Init, "", "kpa"),
    (Uc, Init, Init, "", "kpa"),
    (Rc, Init, Rtr, "vmdrDn", "lak"),
    (Uc, Init, Rtr, "vmdr", "lak"),
    (Rc, Rtr, Rts, "tyYsR", "calng"),
    (Uc, Rtr, Rts, "s", "calg"),
    (Rc, Rts, Rts, "", "calng"),
    (Uc, Rts, Rts, "", "calg"),
    (Rc, Rts, Sqd, "", "e"),
    (Uc, Rts, Sqd, "", "e"),
    (Rc, Sqd, Rts, "", "calng"),
    (Uc, Sqd, Rts, "", "calg"),
    (Rc, Sqd, Sqd, "", "kvlagptyYRDn"),
    (Uc, Sqd, Sqd, "", "kvlag"),
    (Uc, Sqe, Rts, "", "ca"),
];

const LETTERS: [(char, AttrMask); 19] = [
    ('c', AttrMask::CUR_QP_STATE),
    ('e', AttrMask::EN_SQD_ASYNC_NOTIFY),
    ('a', AttrMask::QP_ACCESS_FLAGS),
    ('k', AttrMask::PKEY_INDEX),
    ('p', AttrMask::PORT_NUM),
    ('q', AttrMask::QKEY),
    ('v', AttrMask::AH_ATTR),
    ('m', AttrMask::PATH_MTU),
    ('t', AttrMask::TIMEOUT),
    ('y', AttrMask::RETRY_CNT),
    ('Y', AttrMask::RNR_RETRY),
    ('r', AttrMask::RQ_PSN),
    ('R', AttrMask::MAX_RD_ATOMIC),
    ('l', AttrMask::ALT_AH_ATTR),
    ('n', AttrMask::MIN_RNR_TIMER),
    ('s', AttrMask::SQ_PSN),
    ('D', AttrMask::MAX_DEST_RD_ATOMIC),
    ('g', AttrMask::PATH_MIG_STATE),
    ('d', AttrMask::DEST_QP_NUM),
];

fn letters(text: &str) -> AttrMask {
    text.chars().map(|c| LETTERS.iter().find(|(letter, _)| *letter == c).expect("a letter of the list").1).collect()
}

/// What the list above and the two rules for RESET and ERR say of a step.
fn expected(kind: QpType, from: QpState, to: QpState) -> Option<(AttrMask, AttrMask)> {
    if to == Reset || (to == Err && from != Reset) {
        return Some((AttrMask::empty(), AttrMask::empty()));
    }
    let step = STEPS.iter().find(|step| (step.0, step.1, step.2) == (kind, from, to))?;
    Some((letters(step.3), letters(step.4)))
}

fn path() -> AddressVector {
    AddressVector {
        dgid: Gid([0xFE; 16]),
        sgid_index: 1,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0xF_FFFF,
        sl: 7,
        port_num: 1,
        is_global: true,
    }
}

/// A call with exactly these attributes, all of good value.
fn attr(from: QpState, to: Option<QpState>, mask: AttrMask) -> QpAttr {
    fn some<T>(mask: AttrMask, bit: AttrMask, value: T) -> Option<T> {
        mask.contains(bit).then_some(value)
    }
    QpAttr {
        qp_state: to,
        cur_qp_state: some(mask, AttrMask::CUR_QP_STATE, from),
        pkey_index: some(mask, AttrMask::PKEY_INDEX, 0),
        port_num: some(mask, AttrMask::PORT_NUM, 1),
        qp_access_flags: some(mask, AttrMask::QP_ACCESS_FLAGS, Access::REMOTE_READ),
        qkey: some(mask, AttrMask::QKEY, QKey(1)),
        ah_attr: some(mask, AttrMask::AH_ATTR, path()),
        alt_ah_attr: some(mask, AttrMask::ALT_AH_ATTR, path()),
        path_mtu: some(mask, AttrMask::PATH_MTU, PathMtu::Mtu1024),
        dest_qp_num: some(mask, AttrMask::DEST_QP_NUM, Qpn::new(0x11)),
        rq_psn: some(mask, AttrMask::RQ_PSN, Psn::new(1)),
        sq_psn: some(mask, AttrMask::SQ_PSN, Psn::new(2)),
        max_rd_atomic: some(mask, AttrMask::MAX_RD_ATOMIC, 255),
        max_dest_rd_atomic: some(mask, AttrMask::MAX_DEST_RD_ATOMIC, 255),
        min_rnr_timer: some(mask, AttrMask::MIN_RNR_TIMER, 31),
        timeout: some(mask, AttrMask::TIMEOUT, 31),
        retry_cnt: some(mask, AttrMask::RETRY_CNT, 7),
        rnr_retry: some(mask, AttrMask::RNR_RETRY, 7),
        en_sqd_async_notify: some(mask, AttrMask::EN_SQD_ASYNC_NOTIFY, true),
        path_mig_state: some(mask, AttrMask::PATH_MIG_STATE, MigState::Migrated),
    }
}

fn matrix() -> impl Iterator<Item = (QpType, QpState, QpState)> {
    QpType::ALL
        .into_iter()
        .flat_map(|kind| QpState::ALL.into_iter().flat_map(move |from| QpState::ALL.map(move |to| (kind, from, to))))
}

/// Report H41.
#[test]
fn the_whole_matrix_is_as_written() {
    let mut steps = 0;
    for (kind, from, to) in matrix() {
        let got = check(kind, from, &attr(from, Some(to), AttrMask::empty()));
        let Some((required, optional)) = expected(kind, from, to) else {
            assert_eq!(got, Result::Err(ModifyError::NoSuchTransition { kind, from, to }));
            continue;
        };
        steps += 1;
        if required.is_empty() {
            assert_eq!(got, Ok(to));
        } else {
            let missing = ModifyError::Missing { kind, from, to, missing: required };
            assert_eq!(got, Result::Err(missing), "all that is missing is named");
        }
        assert_eq!(check(kind, from, &attr(from, Some(to), required)), Ok(to));
        assert_eq!(check(kind, from, &attr(from, Some(to), required | optional)), Ok(to));
        for (_, bit) in LETTERS {
            let got = check(kind, from, &attr(from, Some(to), required ^ bit));
            let want = if required.contains(bit) {
                Result::Err(ModifyError::Missing { kind, from, to, missing: bit })
            } else if optional.contains(bit) {
                Ok(to)
            } else {
                Result::Err(ModifyError::NotPermitted { kind, from, to, extra: bit })
            };
            assert_eq!(got, want, "{kind} {from} to {to} with {bit} the other way");
        }
    }
    // 17 of the list, and 7 to RESET and 6 to ERR for each service.
    assert_eq!(steps, 17 + 2 * 13);
}

#[test]
fn no_state_given_stays_where_it_is() {
    for (kind, from, _) in matrix() {
        let stay = attr(from, None, AttrMask::empty());
        assert_eq!(check(kind, from, &stay), check(kind, from, &QpAttr { qp_state: Some(from), ..stay }));
    }
    assert_eq!(check(Rc, Rts, &QpAttr::default()), Ok(Rts));
}

#[test]
fn each_attribute_has_its_own_bit() {
    for (letter, bit) in LETTERS {
        assert_eq!(attr(Rts, None, bit).mask(), bit, "{letter}");
    }
    assert_eq!(attr(Rts, Some(Rts), AttrMask::all()).mask(), AttrMask::all());
    assert_eq!(AttrMask::all().iter().count(), LETTERS.len() + 1);
}

#[test]
fn errors_name_the_step_and_every_attribute() {
    let rtr = attr(Init, Some(Rtr), AttrMask::AH_ATTR | AttrMask::RQ_PSN | AttrMask::MIN_RNR_TIMER);
    assert_eq!(
        check(Rc, Init, &rtr).unwrap_err().to_string(),
        "RC INIT to RTR needs also: path_mtu, max_dest_rd_atomic, dest_qp_num"
    );
    let rtr = QpAttr { path_mtu: Some(PathMtu::Mtu256), dest_qp_num: Some(Qpn::new(3)), ..rtr };
    assert_eq!(check(Uc, Init, &rtr).unwrap_err().to_string(), "UC INIT to RTR does not take: min_rnr_timer");
    let rts = attr(Reset, Some(Rts), AttrMask::all());
    assert_eq!(check(Rc, Reset, &rts).unwrap_err().to_string(), "a RC queue pair cannot go from RESET to RTS");
}

#[test]
fn the_believed_state_must_be_the_actual_one() {
    let call = QpAttr { cur_qp_state: Some(Rts), ..attr(Sqd, Some(Rts), AttrMask::empty()) };
    let error = check(Rc, Sqd, &call).unwrap_err();
    assert_eq!(error, ModifyError::NotInThatState { given: Rts, actual: Sqd });
    assert_eq!(error.to_string(), "cur_qp_state is RTS, but the queue pair is in SQD");
}

#[test]
fn roce_needs_a_grh() {
    let rtr = attr(Init, Some(Rtr), letters("vmdrDnl"));
    let local = Some(AddressVector { is_global: false, ..path() });
    let error = check(Rc, Init, &QpAttr { ah_attr: local, ..rtr }).unwrap_err();
    assert_eq!(error, ModifyError::NoGrh { attribute: "ah_attr" });
    assert_eq!(error.to_string(), "ah_attr.is_global is false: RoCE needs a GRH; set is_global, dgid and sgid_index");
    let error = check(Rc, Init, &QpAttr { alt_ah_attr: local, ..rtr }).unwrap_err();
    assert_eq!(error, ModifyError::NoGrh { attribute: "alt_ah_attr" });
}

#[test]
fn values_beyond_their_field_are_refused() {
    let sqd = attr(Sqd, Some(Sqd), letters("ptyYnv"));
    assert_eq!(check(Rc, Sqd, &sqd), Ok(Sqd));
    let with_path = |change: fn(&mut AddressVector)| {
        let mut path = path();
        change(&mut path);
        QpAttr { ah_attr: Some(path), ..sqd }
    };
    let cases = [
        (QpAttr { timeout: Some(32), ..sqd }, "timeout is 32; it must be 0 to 31"),
        (QpAttr { retry_cnt: Some(8), ..sqd }, "retry_cnt is 8; it must be 0 to 7"),
        (QpAttr { rnr_retry: Some(8), ..sqd }, "rnr_retry is 8; it must be 0 to 7"),
        (QpAttr { min_rnr_timer: Some(32), ..sqd }, "min_rnr_timer is 32; it must be 0 to 31"),
        (QpAttr { port_num: Some(0), ..sqd }, "port_num is 0; it must be 1 to 255"),
        (with_path(|path| path.flow_label = 0x10_0000), "ah_attr.flow_label is 1048576; it must be 0 to 1048575"),
        (with_path(|path| path.sl = 8), "ah_attr.sl is 8; it must be 0 to 7"),
        (with_path(|path| path.port_num = 0), "ah_attr.port_num is 0; it must be 1 to 255"),
    ];
    for (call, text) in cases {
        assert_eq!(check(Rc, Sqd, &call).unwrap_err().to_string(), text);
    }
}

#[test]
fn states_and_posts() {
    let send = QpState::ALL.map(QpState::may_post_send);
    assert_eq!(send, [false, false, false, true, true, true, true]);
    let recv = QpState::ALL.map(QpState::may_post_recv);
    assert_eq!(recv, [false, true, true, true, true, true, true]);
    for (number, state) in QpState::ALL.into_iter().enumerate() {
        assert_eq!((state as usize, QpState::from_u8(number as u8)), (number, Some(state)));
        let shared = SharedState::default();
        shared.store(state);
        assert_eq!(shared.load(), state);
    }
    assert_eq!(QpState::from_u8(7), None);
}

#[test]
fn the_table_prints_every_step() {
    let table = table_markdown();
    let row = "| RTR → RTS | UC | sq_psn | cur_qp_state, qp_access_flags, alt_ah_attr, path_mig_state |";
    assert!(table.lines().any(|line| line == row), "{table}");
    assert!(table.lines().any(|line| line == "| SQE → RTS | UC | none | cur_qp_state, qp_access_flags |"));
    assert!(!table.contains("| SQE → RTS | RC |"));
    let steps: usize = table.lines().skip(2).map(|line| if line.contains("RC, UC") { 2 } else { 1 }).sum();
    assert_eq!(steps, 17 + 2 * 13);
}
