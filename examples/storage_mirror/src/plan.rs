//! What a run does: the options that all nodes share.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The service that carries the blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Data {
    /// Unreliable connection: what is lost is found by the keeper and asked for again.
    Uc,
    /// Reliable connection: the card resends.
    Rc,
}

impl Data {
    /// As it stands in tables.
    pub fn name(self) -> &'static str {
        match self {
            Data::Uc => "UC",
            Data::Rc => "RC",
        }
    }
}

/// One run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plan {
    /// What carries the blocks.
    pub data: Data,
    /// Blocks of a volume; each node has a volume for each other node.
    pub blocks: u32,
    /// Times that each block gets a new version.
    pub rounds: u32,
    /// Probability that a frame is lost, at each sender.
    pub loss: f64,
    /// Whether the metadata channel counts credits.
    pub credits: bool,
    /// RECVs of a metadata channel.
    pub channel_depth: u32,
    /// Microseconds that a keeper spends on each record.
    pub slow_mirror_us: u32,
    /// What decides which frames are lost.
    pub seed: u64,
}
