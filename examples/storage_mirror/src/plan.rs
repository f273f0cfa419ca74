//! What a run does: the options that all nodes share.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::Load;
use crate::sabotage::{How, Sabotage};

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
    /// Bytes of a block.
    pub block_size: u32,
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
    /// Time without any progress after which a node gives up.
    pub patience: Duration,
    /// A failure made on purpose.
    pub sabotage: Option<Sabotage>,
    /// What decides which frames are lost.
    pub seed: u64,
}

impl Plan {
    /// A plan of what the command line says.
    pub fn new(data: Data, loss: f64, load: &Load) -> Plan {
        Plan {
            data,
            blocks: load.blocks,
            block_size: load.block_size,
            rounds: load.rounds,
            loss,
            credits: !load.no_credits,
            channel_depth: load.channel_depth,
            slow_mirror_us: load.slow_mirror,
            patience: Duration::from_secs(load.patience.into()),
            sabotage: load.sabotage,
            seed: load.seed,
        }
    }

    /// The command line that leads to this plan, for a node's process.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--data".to_owned(), self.data.name().to_lowercase()];
        let mut option = |name: &str, value: &dyn ToString| arguments.extend([name.to_owned(), value.to_string()]);
        option("--loss", &self.loss);
        option("--blocks", &self.blocks);
        option("--block-size", &self.block_size);
        option("--rounds", &self.rounds);
        option("--channel-depth", &self.channel_depth);
        option("--slow-mirror", &self.slow_mirror_us);
        option("--patience", &self.patience.as_secs());
        option("--seed", &self.seed);
        if let Some(sabotage) = &self.sabotage {
            option("--break", sabotage);
        }
        arguments.extend((!self.credits).then(|| "--no-credits".to_owned()));
        arguments
    }

    /// Whether node `me` is to fail in this way.
    pub fn breaks(&self, me: u32, how: How) -> bool {
        self.sabotage == Some(Sabotage { node: me, how })
    }
}
