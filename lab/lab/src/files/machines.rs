//! Machines under their names: `machines/*.toml`.

use super::catalogue::{self, AsRead, Kind, Source};
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
        static AS_READ: AsRead<MachineChoice> = AsRead::nothing();
        AS_READ.find(Kind::Machine, name, MachineChoice::read)
    }

    fn read(source: Source) -> Result<MachineChoice, LabError> {
        let mut config: MachineConfig = catalogue::extending(Kind::Machine, &source.file, |lookup| {
            MachineConfig::parse(&source.file, &source.text, lookup)
        })?;
        config.title = catalogue::title_of(Kind::Machine, &source, config.title);
        Ok(MachineChoice { name: source.name, config })
    }

    /// Whether it is in the program like this.
    pub fn is_built_in(&self) -> bool {
        let is_embedded = catalogue::embedded(Kind::Machine, &self.name).is_some();
        is_embedded && MachineChoice::find(&self.name).is_ok_and(|found| found == *self)
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
