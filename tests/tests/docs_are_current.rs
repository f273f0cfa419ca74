//! Pages that are made from the code say what the code does. `UPDATE_DOCS=1 cargo test -p xroce-tests` writes them anew.

use std::fs;
use std::path::Path;

fn check(page: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(path.parent().expect("docs")).expect("docs can be made");
        fs::write(&path, text).expect("the page can be written");
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(there == text, "docs/{page} is out of date: run UPDATE_DOCS=1 cargo test -p xroce-tests");
}

#[test]
fn qp_states() {
    let table = xroce_transport::qp::state::table_markdown();
    let text = format!(
        "# The states of a queue pair\n\nMade from the table in `stack/transport/src/qp/state.rs`. A call that lacks a required \
         attribute, or has one that is\nneither required nor optional, changes nothing and says which.\n\n{table}"
    );
    check("qp-states.md", &text);
}

#[test]
fn counters_by_name() {
    let text = format!(
        "# Counters by name\n\nMade from the table in `stack/verbs/src/stat/names.rs`: what `xroce stat` shows, under the names of \
         `rdma_rxe` and mlx5 where\nthey count the same, and the fields of the transport's, the poll loop's and the port's \
         counters that each is made of.\n\n{}",
        xroce::stat::markdown()
    );
    check("counters.md", &text);
}
