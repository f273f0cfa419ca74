//! Reports for the tests of this folder and of `top`.

use serde_json::{Value, json};
use xroce::stat::Report;

/// A report with one queue pair; what matters is given.
pub fn report(at_ns: u64, qpn: u32, counters: &Value, last_error: Option<&str>) -> Report {
    let device = json!({"name": "eth0", "fw_ver": "0", "progress": "event", "port_state": "ACTIVE", "mtu": 1500,
        "active_mtu": 1024, "gids": [], "shards": 1, "queue_pairs": 1, "counters": {}, "drops": {}});
    let qp = json!({"qpn": qpn, "qp_type": "RC", "state": "RTS", "shard": 0, "dest_qpn": 0x22, "peer": "192.0.2.2",
        "local": "192.0.2.1", "path_mtu": 1024, "sq_psn": 0, "una_psn": 0, "sent_end_psn": 0, "epsn": 0, "msn": 0,
        "outstanding": 3, "waiting": 4, "recvs": 0, "in_flight": 0, "window": 256, "rd_atomics": 0, "max_rd_atomic": 16,
        "timeout": 14, "ack_awaited": false, "rnr_waiting": false, "retries_left": 7, "retry_cnt": 7,
        "rnr_retries_left": 7, "rnr_retry": 7, "nak": "none", "responses": 0, "last_error": last_error,
        "counters": counters});
    let report = json!({"version": 1, "pid": 9, "program": "p", "at_ns": at_ns, "device": device, "qps": [qp]});
    serde_json::from_value(report).expect("a report")
}
