//! What an axis measures: a name, a unit, and whether it is logarithmic.

/// An axis in words.
#[derive(Clone, Debug)]
pub struct Axis {
    name: String,
    unit: String,
    log: bool,
}

impl Axis {
    /// An axis of equal steps.
    pub fn linear(name: &str, unit: &str) -> Axis {
        Axis { name: name.to_owned(), unit: unit.to_owned(), log: false }
    }

    /// An axis of equal ratios.
    pub fn log(name: &str, unit: &str) -> Axis {
        Axis { log: true, ..Axis::linear(name, unit) }
    }

    /// The name of what files call `key`: `size_bytes` is a size, and a setting goes by its key.
    pub fn name_of(key: &str) -> String {
        let suffixes = [
            "_mbit_per_cpu_percent",
            "_bytes",
            "_mb_s",
            "_cycles",
            "_ns",
            "_percent",
            "_us",
            "_mhz",
            "_mbit_s",
        ];
        let name = suffixes.iter().find_map(|suffix| key.strip_suffix(suffix)).unwrap_or(key);
        name.replace(['_', '.'], " ").trim_start_matches("machine ").trim_start_matches("kernel ").to_owned()
    }

    /// What it measures.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its unit; empty for plain numbers.
    pub fn unit(&self) -> &str {
        &self.unit
    }

    /// What stands beside it.
    pub fn words(&self) -> String {
        let Axis { name, unit, log } = self;
        let unit = if unit.is_empty() { String::new() } else { format!(", {unit}") };
        let log = if *log { " (log)" } else { "" };
        format!("{name}{unit}{log}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_a_name_a_unit_and_says_when_it_is_logarithmic() {
        assert_eq!(Axis::log(&Axis::name_of("size_bytes"), "bytes").words(), "size, bytes (log)");
        assert_eq!(
            Axis::log(&Axis::name_of("busy_bandwidth_mb_s"), "MB/s").words(),
            "busy bandwidth, MB/s (log)"
        );
        assert_eq!(Axis::name_of("machine.tlb.data.entries"), "tlb data entries");
        assert_eq!(Axis::linear("processor", "").words(), "processor");
    }
}
