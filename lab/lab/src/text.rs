//! Numbers and times as people read them, and the number that stands for several.

/// A number with as many digits as it deserves: `65,536`, `12.5`, `0.031`.
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    if value == value.trunc() || magnitude >= 1000.0 {
        return grouped(value.round() as i64);
    }
    let decimals = match magnitude {
        m if m >= 100.0 => 1,
        m if m >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A whole number with a comma between groups of three digits.
pub fn grouped(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    if value < 0 {
        text.push('-');
    }
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A duration in the unit that suits it.
pub fn seconds(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{} s", grouped(value.round() as i64)),
        v if v >= 1.0 => format!("{value:.2} s"),
        v if v >= 1e-3 => format!("{:.2} ms", value * 1e3),
        v if v >= 1e-6 => format!("{:.2} µs", value * 1e6),
        _ => format!("{:.0} ns", value * 1e9),
    }
}

/// An amount of data: `100 bytes`, `64.0 KiB`, `50.0 MiB`. KiB and MiB are powers of 1024; an MB is 10^6 bytes, and is
/// said of bandwidths only.
pub fn bytes(value: u64) -> String {
    match value {
        v if v >= 1 << 30 => format!("{:.2} GiB", v as f64 / f64::from(1 << 30)),
        v if v >= 1 << 20 => format!("{:.1} MiB", v as f64 / f64::from(1 << 20)),
        v if v >= 1 << 10 => format!("{:.1} KiB", v as f64 / 1024.0),
        v => format!("{v} bytes"),
    }
}

/// A size in bytes, short: `4K`, `2M`.
pub fn size(bytes: f64) -> String {
    let whole = |unit: f64| bytes >= unit && bytes % unit == 0.0;
    if whole(1048576.0) {
        format!("{}M", bytes / 1048576.0)
    } else if whole(1024.0) {
        format!("{}K", bytes / 1024.0)
    } else {
        number(bytes)
    }
}

/// The unit in which reports have what is measured in `unit`, and what a value is multiplied by: one for each quantity.
/// Data move at MB (10^6 bytes) a second, also where a wire or a paper has Mbit; what an operation takes is in
/// microseconds. Cycles stay cycles: they are what a mechanism costs on any clock. Metrics and tables keep their own.
pub fn report_unit(unit: &str) -> (&str, f64) {
    match unit {
        "Mbit/s" => ("MB/s", 0.125),
        // Throughput by CPU use; a paper has it so.
        "Mbit/s/%" | "Mbit/CPU" => ("MB/s/%", 0.125),
        "us" => ("µs", 1.0),
        "ns" => ("µs", 1e-3),
        other => (other, 1.0),
    }
}

/// The one in the middle when they are in order; of two, what is halfway between them. NaN if there is none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values {
        [] => f64::NAN,
        _ if values.len() % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_has_one_unit() {
        let rates = ["MB/s", "Mbit/s"].map(report_unit);
        assert_eq!(rates, [("MB/s", 1.0), ("MB/s", 0.125)]);
        assert_eq!(["us", "ns", "µs"].map(|unit| report_unit(unit).0), ["µs"; 3]);
        assert_eq!(["Mbit/CPU", "Mbit/s/%"].map(report_unit), [("MB/s/%", 0.125); 2]);
        assert_eq!(report_unit("cycles"), ("cycles", 1.0));
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&mut [3.0, 1.0, 100.0]), 3.0);
        assert_eq!(median(&mut [4.0, 1.0, 100.0, 2.0]), 3.0);
        assert!(median(&mut []).is_nan());
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(number(65536.0), "65,536");
        assert_eq!(number(12.5), "12.5");
        assert_eq!(number(0.0), "0");
        assert_eq!(number(99.956), "99.96");
        assert_eq!(grouped(-1_234_567), "-1,234,567");
        assert_eq!(seconds(0.00025), "250.00 µs");
        assert_eq!(
            [100, 65_536, 52_428_800, 1 << 30].map(bytes),
            ["100 bytes", "64.0 KiB", "50.0 MiB", "1.00 GiB"]
        );
        assert_eq!([4096.0, 2_097_152.0, 100.0].map(size), ["4K", "2M", "100"]);
    }
}
