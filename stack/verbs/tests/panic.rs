//! A port that panics in a step breaks the device, and everybody hears of it; nothing hangs.

mod common;

use common::before::Before;
use common::{ADDRESSES, PATIENCE, device, ip};
use xroce::{Access, AsyncEventKind, Port, Progress, QpInitAttr, QpType};
use xroce_port::sim::{PipeConfig, loop_pair};

/// A port that panics in the burst after so many.
fn bomb(port: impl Port + 'static, mut bursts: u32) -> impl Port + 'static {
    Before(port, move || bursts = bursts.checked_sub(1).expect("the bomb goes off"))
}

#[test]
fn a_panic_in_the_poll_thread_is_a_fatal_event_and_an_error_of_control_calls() {
    let (port, _other) = loop_pair(&PipeConfig::default()).unwrap();
    let context = device(bomb(port, 1000), 0, Progress::Spin { cpu: None }, |_| {});
    assert_eq!(context.query_gid(0).unwrap().to_ip(), ip(ADDRESSES[0]));
    let event = context.get_async_event(Some(PATIENCE)).unwrap().unwrap();
    assert_eq!(event.kind, AsyncEventKind::DeviceFatal);
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16).unwrap());
    let error = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    assert_eq!(cq.poll_one().unwrap(), None);
}

#[test]
fn memory_can_be_taken_back_from_a_device_that_panicked() {
    let (port, _other) = loop_pair(&PipeConfig::default()).unwrap();
    let context = device(bomb(port, 1000), 0, Progress::Spin { cpu: None }, |_| {});
    let pd = context.alloc_pd().unwrap();
    let mr = pd.reg_mr(vec![7u8; 64], Access::LOCAL_WRITE).unwrap();
    let event = context.get_async_event(Some(PATIENCE)).unwrap().unwrap();
    assert_eq!(event.kind, AsyncEventKind::DeviceFatal);
    let (done, waits) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(mr.dereg().unwrap().into_vec()));
    assert_eq!(waits.recv_timeout(PATIENCE).unwrap(), vec![7u8; 64]);
}

#[test]
fn who_sleeps_on_a_channel_of_a_device_that_panics_is_woken_and_told() {
    let (port, _other) = loop_pair(&PipeConfig::default()).unwrap();
    let context = device(bomb(port, 100_000), 0, Progress::Spin { cpu: None }, |_| {});
    let channel = context.create_comp_channel().unwrap();
    let cq = context.create_cq_on(16, &channel).unwrap();
    let (said, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        loop {
            cq.req_notify(false).unwrap();
            match channel.get_cq_event(None) {
                Ok(_) => assert_eq!(cq.poll_one().unwrap(), None),
                Err(error) => return said.send(error.to_string()),
            }
        }
    });
    let error = told.recv_timeout(PATIENCE).expect("it does not sleep for ever");
    assert!(error.contains("panicked"), "{error}");
    assert_eq!(context.get_async_event(None).unwrap().unwrap().kind, AsyncEventKind::DeviceFatal);
    assert!(context.get_async_event(None).unwrap_err().to_string().contains("panicked"), "nothing more comes");
}
