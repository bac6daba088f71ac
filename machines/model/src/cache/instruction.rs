//! The instruction cache of one package.

use super::colour::Colours;
use super::level::Level;
use super::stats::LevelStats;
use crate::config::InstructionCacheConfig;

/// The instruction cache of one package.
#[derive(Clone, Debug)]
pub(super) struct InstructionCache {
    pub(super) level: Level,
    pub(super) counts: LevelStats,
    pub(super) colours: Colours,
}

impl InstructionCache {
    pub(super) fn new(config: &InstructionCacheConfig) -> InstructionCache {
        let sets = config.size_bytes.value / (config.ways.value * config.line_bytes.value);
        let level = Level::new(sets as usize, config.ways.value as usize);
        let colours = Colours::new(config.colours(), config.line_bytes.value);
        InstructionCache { level, counts: LevelStats::default(), colours }
    }

    /// Lines of memory from this number on have no tag: the cache's own numbers are larger by a colour.
    pub(super) fn line_limit(&self) -> u64 {
        self.level.line_limit() / u64::from(self.colours.count())
    }

    /// Takes the line of `pa` out, whatever it was fetched by.
    pub(super) fn drop_line(&mut self, line: u64, pa: u64) {
        for colour in 0..self.colours.count() {
            let known = line + self.colours.skew(pa, colour);
            self.counts.removals += u64::from(self.level.remove(known).is_some());
        }
    }

    /// The laws of its counts and its state.
    pub(super) fn check(&self) -> Result<(), String> {
        let c = &self.counts;
        let held = self
            .level
            .check(|_| Ok::<(), String>(()))
            .map_err(|what| format!("instruction cache: {what}"))?;
        if c.misses != c.fills || c.fills != c.evictions + c.removals + held {
            return Err(format!("instruction cache: {c:?} with {held} lines held"));
        }
        Ok(())
    }
}
