//! Where frames got lost on their way, as those count it who lost them. Enters: a station. Leaves: a count a place.
//!
//! UC has no flow control and no resends: a frame that a ring, an interface or the guest's backlog has no room for takes its
//! message along, on a sound implementation too. These counts tell that apart from a fault of the protocol.

use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;

use serde_json::Value;

use super::Station;

/// Frames lost since each place began to count.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Losses(BTreeMap<String, u64>);

impl Losses {
    /// All counts of now: our receive ring, the interfaces between it and the guest, the guest's interface and its backlog.
    ///
    /// # Errors
    /// The guest does not tell: it has ended, or is about to.
    ///
    /// # Panics
    /// A place of this machine does not tell.
    pub fn of(station: &Station) -> Result<Self, String> {
        let mut all = Self::default();
        if let Some(lost) = station.lost_by_our_port() {
            all.add("our receive ring".into(), lost);
        }
        let name = station.guest.namespace();
        for namespace in [name.to_owned(), format!("{name}-br")] {
            let out = Command::new("ip")
                .args(["-n", &namespace, "-s", "-j", "link", "show"])
                .output()
                .unwrap_or_else(|error| panic!("ip: {error}"));
            all.add_links("", &String::from_utf8_lossy(&out.stdout));
        }
        let said = station.guest.run("ip -s -j link show; echo; cat /proc/net/softnet_stat");
        let Some((links, backlog)) = said.stdout.split_once("]\n") else {
            return Err(format!("the guest does not say what it has lost (status {}): {:?}", said.status, said.stdout));
        };
        all.add_links("the guest's ", &format!("{links}]"));
        all.add("the guest's backlog".into(), backlog.lines().filter_map(backlog_drops).sum());
        Ok(all)
    }

    /// What was lost since `before`. A place that has begun anew since then counts from there.
    pub fn since(&self, before: &Self) -> Self {
        let lost = |(place, &now): (&String, &u64)| {
            let before = before.0.get(place).copied().unwrap_or(0);
            let lost = if now < before { now } else { now - before };
            (lost > 0).then(|| (place.clone(), lost))
        };
        Self(self.0.iter().filter_map(lost).collect())
    }

    /// Whether nothing was.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, place: String, frames: u64) {
        *self.0.entry(place).or_default() += frames;
    }

    /// `text`: what `ip -s -j link` prints.
    fn add_links(&mut self, whose: &str, text: &str) {
        let links: Value =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("ip -s -j link: {error}: {text:?}"));
        for link in links.as_array().into_iter().flatten() {
            let name = link["ifname"].as_str().unwrap_or("?");
            for direction in ["rx", "tx"] {
                let counts = &link["stats64"][direction];
                // `errors` has the others in it with some drivers; `dropped` is where veth, tap and virtio count.
                let lost = ["dropped", "over_errors"].iter().filter_map(|key| counts[*key].as_u64()).sum();
                self.add(format!("{whose}{name} {direction}"), lost);
            }
        }
    }
}

/// The second of the hexadecimal numbers of a CPU's line of /proc/net/softnet_stat: packets the backlog had no room for.
fn backlog_drops(line: &str) -> Option<u64> {
    u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok()
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<_> = self.0.iter().map(|(place, frames)| format!("{place} {frames}")).collect();
        f.write_str(&places.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINKS: &str = r#"[{"ifname":"x0","stats64":{"rx":{"dropped":3,"over_errors":0},"tx":{"dropped":1}}}]"#;

    #[test]
    fn each_place_has_its_count_and_only_new_losses_are_told() {
        let mut before = Losses::default();
        before.add_links("", LINKS);
        assert_eq!(before.to_string(), "x0 rx 3, x0 tx 1");
        let mut now = before.clone();
        assert!(now.since(&before).is_none());
        now.add("x0 rx".into(), 4);
        now.add("our receive ring".into(), 2);
        assert_eq!(now.since(&before).to_string(), "our receive ring 2, x0 rx 4");
        // A device that was opened anew.
        before.add("our receive ring".into(), 9);
        assert_eq!(now.since(&before).to_string(), "our receive ring 2, x0 rx 4");
    }

    #[test]
    fn the_backlog_counts_in_hexadecimal() {
        assert_eq!(backlog_drops("0000ffff 00000010 00000000"), Some(16));
        assert_eq!(backlog_drops(""), None);
    }
}
