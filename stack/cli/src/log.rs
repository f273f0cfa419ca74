//! What the stack tells about itself while it works: `--log FILTER`, or `RUST_LOG`.
//!
//! In: a filter as tracing-subscriber has them. Out: events on standard error; without a filter none, and nobody listens.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::commands::Usage;

/// Where a filter is looked for if none was given.
const VARIABLE: &str = "RUST_LOG";

/// Begins to listen, if there is a filter; an empty one is none.
pub fn start(filter: Option<&str>) -> Result<(), Usage> {
    let (name, text) = match (filter, std::env::var(VARIABLE)) {
        (Some(text), _) => ("--log", text.to_owned()),
        (None, Ok(text)) => (VARIABLE, text),
        _ => return Ok(()),
    };
    if text.trim().is_empty() {
        return Ok(());
    }
    let filter =
        parse(&text).map_err(|why| Usage(format!("{name} {text:?}: {why}; debug, or xroce::qp=debug, say")))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .init();
    Ok(())
}

fn parse(text: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn filters_are_those_of_tracing() {
        for good in ["debug", "xroce::qp=debug", "warn,xroce_engine=trace", "off"] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in ["xroce::qp=loud", "a=b=c"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
