//! What the names of keys say: the units that they end in, and what is said by another.

/// The ends of names that are units, and how those are written.
const SUFFIXES: [(&str, &str); 9] = [
    ("_mhz", "MHz"),
    ("_mbit_s", "Mbit/s"),
    ("_mb_s", "MB/s"),
    ("_bytes", "bytes"),
    ("_ms", "ms"),
    ("_us", "us"),
    ("_ns", "ns"),
    ("_cycles", "cycles"),
    ("_percent", "%"),
];

/// The unit that the name of `key` ends in; empty for plain numbers.
pub(super) fn unit_of(key: &str) -> &'static str {
    SUFFIXES.iter().find(|(suffix, _)| key.ends_with(suffix)).map_or("", |(_, unit)| *unit)
}

/// The unit that `key` must then have, where `unit` is another.
pub(super) fn contradicted(key: &str, unit: &str) -> Option<&'static str> {
    let named = unit_of(key);
    let same = named == unit || (named, unit) == ("us", "µs") || (named, unit) == ("%", "percent");
    (!named.is_empty() && !same).then_some(named)
}

/// What says a thing that has no key of its own.
pub(super) fn hint_of(prefix: &str, key: &str) -> &'static str {
    let last = key.rsplit('.').next().unwrap_or_default();
    match (prefix, last) {
        ("machine", "cpus" | "cores" | "count") => {
            "; a machine has `cpu.packages` times `cpu.threads_per_package` CPUs"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_the_one_that_the_name_ends_in() {
        assert_eq!(contradicted("chunk_bytes", "KB"), Some("bytes"));
        assert_eq!(contradicted("wait_us", "ms"), Some("us"));
        assert_eq!(contradicted("chunk_bytes", "bytes"), None);
        assert_eq!(contradicted("chunk", "KB"), None);
    }
}
