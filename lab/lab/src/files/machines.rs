//! Machines under their names: `machines/*.toml`.

use super::catalogue::{self, Kind};
use crate::error::LabError;
use pageferry_model::MachineConfig;
use pageferry_sourced::Constant;

/// A machine under a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineChoice {
    /// The short name.
    pub name: String,
    /// Its values.
    pub config: MachineConfig,
}

impl MachineChoice {
    /// The machine called `name`, or in the file `name`.
    ///
    /// # Errors
    /// An unknown name, or a file that cannot be used.
    pub fn find(name: &str) -> Result<MachineChoice, LabError> {
        let source = catalogue::find(Kind::Machine, name)?;
        let config = catalogue::extending(Kind::Machine, &source.file, |lookup| {
            MachineConfig::parse(&source.file, &source.text, lookup)
        })?;
        Ok(MachineChoice { name: source.name, config })
    }

    /// Every constant with its source.
    pub fn constants(&self) -> Vec<Constant> {
        self.config.constants()
    }

    /// Cycles as nanoseconds.
    pub fn nanoseconds(&self, cycles: f64) -> f64 {
        cycles * 1000.0 / self.config.cpu.clock_mhz.value as f64
    }
}
