//! How things look: one colour, one mark and one dash for each meaning, the same in all figures.
//!
//! Everything is derived from the name of what is drawn. A name in [`SERIES`] looks as it says there. A longer one is
//! of the kind that it names and is drawn hollow (`pass, touched` is `pass`, hollow). All others take one of
//! [`OTHERS`], in the order in which they appear. Colours follow Okabe and Ito, with a darker and a lighter shade of
//! each for light and dark pages; as there are more meanings than colours that everybody tells apart, nothing is told
//! by colour alone.

use std::fmt::Write as _;

/// The shape of a point. Diamonds are for what is published.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Mark {
    Circle,
    Square,
    Up,
    Down,
    Left,
    Right,
    Cross,
    Plus,
    Star,
    Pentagon,
}

/// What one meaning is drawn as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Look {
    /// The name of its colour: `f-` and `s-` before it are the classes that fill and stroke.
    pub(super) colour: &'static str,
    pub(super) mark: Mark,
    /// Marks are outlines.
    pub(super) hollow: bool,
    /// The dashes of a line, as SVG has them; empty for a line without gaps.
    pub(super) dash: &'static str,
}

/// A name and all that is derived from it.
struct Series {
    name: &'static str,
    colour: &'static str,
    mark: Mark,
    dash: &'static str,
    /// The dashes of its hollow kin.
    other_dash: &'static str,
}

const fn series(
    name: &'static str,
    colour: &'static str,
    mark: Mark,
    dash: &'static str,
    other_dash: &'static str,
) -> Series {
    Series { name, colour, mark, dash, other_dash }
}

/// Mechanisms, then what else grows, then kernels, then kinds of invalidations.
const SERIES: [Series; 35] = [
    series("copy", "copy", Mark::Circle, "", "14 4"),
    series("loan", "loan", Mark::Square, "8 3", "8 3 1.5 3"),
    series("transfer", "transfer", Mark::Up, "2.5 3", "2.5 3 2.5 7"),
    // A page flip is a transfer of the card's page.
    series("flip", "transfer", Mark::Up, "2.5 3", "2.5 3 2.5 7"),
    series("both", "both", Mark::Star, "10 3 2.5 3", "10 3 2.5 3 2.5 3"),
    series("pass and loan", "pass-loan", Mark::Left, "12 3 2.5 3 2.5 3", "12 6 2.5 6"),
    series("pass", "pass", Mark::Down, "12 3 4 3", "12 3 4 3 4 3"),
    series("socket", "socket", Mark::Cross, "5 4", "5 4 1.5 4"),
    series("map", "map", Mark::Pentagon, "6 2 1.5 2", "6 5 1.5 5"),
    series("auto", "auto", Mark::Plus, "1.5 3", "1.5 6"),
    series("look-up", "lookup", Mark::Right, "16 3", "16 6"),
    series("space found", "space", Mark::Left, "6 6", "6 8"),
    series("amap freed", "amap", Mark::Pentagon, "3 6", "3 9"),
    series("fork", "fork", Mark::Star, "16 3 2 3", "16 6 2 6"),
    // What attaches memory, in figures of their own.
    series("random", "lookup", Mark::Right, "16 3", "16 6"),
    series("previous", "space", Mark::Left, "6 6", "6 8"),
    series("proposed", "fork", Mark::Star, "16 3 2 3", "16 6 2 6"),
    series("monolithic", "amap", Mark::Pentagon, "3 6", "3 9"),
    // What goes to another process or into a file, in figures of their own.
    series("share", "map", Mark::Pentagon, "6 2 1.5 2", "6 5 1.5 5"),
    series("donate", "pass", Mark::Down, "12 3 4 3", "12 3 4 3 4 3"),
    series("quick", "both", Mark::Star, "10 3 2.5 3", "10 3 2.5 3 2.5 3"),
    series("anflush", "lookup", Mark::Right, "16 3", "16 6"),
    series("munmap", "space", Mark::Left, "6 6", "6 8"),
    series("replaced", "fork", Mark::Star, "16 3 2 3", "16 6 2 6"),
    series("give", "fork", Mark::Star, "16 3 2 3", "16 6 2 6"),
    series("lend", "lookup", Mark::Right, "16 3", "16 6"),
    series("container", "pass-loan", Mark::Pentagon, "3 6", "3 9"),
    series("fbuf", "space", Mark::Left, "6 6", "6 8"),
    series("Mach", "lookup", Mark::Right, "16 3", "16 6"),
    series("original", "original", Mark::Cross, "7 4", "7 8"),
    series("sf_buf", "sf-buf", Mark::Square, "", "14 4"),
    series("sf_buf-shared", "sf-buf-shared", Mark::Up, "3 3", "3 6"),
    series("local, entry in cache", "local-cached", Mark::Circle, "", "14 4"),
    series("local, entry in memory", "local", Mark::Square, "8 3", "8 6"),
    series("remote", "shoot", Mark::Up, "2.5 3", "2.5 6"),
];

/// What has no name of its own in [`SERIES`]: machines, and lines and kernels of one's own.
const OTHERS: [Series; 6] = [
    series("", "o0", Mark::Circle, "", "14 4"),
    series("", "o1", Mark::Square, "8 3", "8 6"),
    series("", "o2", Mark::Up, "2.5 3", "2.5 6"),
    series("", "o3", Mark::Down, "10 3 2.5 3", "10 6 2.5 6"),
    series("", "o4", Mark::Plus, "5 4", "5 8"),
    series("", "o5", Mark::Star, "12 3 4 3", "12 6 4 6"),
];

/// The colours: name, on a light page, on a dark one.
const COLOURS: [(&str, &str, &str); 40] = [
    ("published", "#1d2429", "#e6eaed"),
    ("agrees", "#14708c", "#5dc3e0"),
    ("differs", "#b3261e", "#ff8a80"),
    ("then", "#6a747b", "#a6b0b7"),
    ("today", "#00608f", "#63c3f3"),
    ("copy", "#b96a00", "#f0a030"),
    ("loan", "#2b8cc4", "#56b4e9"),
    ("transfer", "#00806a", "#2fc29a"),
    ("both", "#00418a", "#4a72fb"),
    ("pass-loan", "#9a2f7c", "#c77fb0"),
    ("pass", "#c0609a", "#c24fae"),
    ("socket", "#c2410c", "#ff7f4d"),
    ("map", "#524400", "#e0d25a"),
    ("auto", "#3a434b", "#c3ccd2"),
    ("lookup", "#444e9a", "#4a5cfe"),
    ("space", "#6a3400", "#b45601"),
    ("amap", "#47a50a", "#63d01a"),
    ("fork", "#4a1a2a", "#f1dae3"),
    ("original", "#8f959a", "#98a4ad"),
    ("sf-buf", "#0072b2", "#3a9bd9"),
    ("sf-buf-shared", "#123f55", "#a5d5e6"),
    ("o0", "#6d4c9f", "#b39ae0"),
    ("o1", "#2f7f8f", "#6fc3d0"),
    ("o2", "#9a5b4a", "#d79b8a"),
    ("o3", "#5f7a1f", "#b0cc66"),
    ("o4", "#8f3f7f", "#d98fcd"),
    ("o5", "#4f5f8f", "#9fb0dd"),
    ("local-cached", "#f0997c", "#ffc1ab"),
    ("local", "#d8481f", "#eb4a10"),
    ("shoot", "#6d1f4f", "#c2508c"),
    ("user", "#c3d3e2", "#4a5f73"),
    ("tlb", "#e6c64f", "#d9b441"),
    ("pte", "#8a6d3b", "#b8955a"),
    ("kva", "#cbbfe8", "#7d74a8"),
    ("eph", "#2a9d8f", "#39b8a8"),
    ("vm", "#94b86b", "#9ac26c"),
    ("lock", "#7a6a9c", "#6f58ae"),
    ("proto", "#56626a", "#8b98a1"),
    ("sys", "#aeb6bc", "#5f6b73"),
    ("idle", "#eceff1", "#232b31"),
];

/// The looks of all that a report draws.
pub(super) struct Looks {
    /// Names without a look of their own, in the order in which they appear.
    others: Vec<String>,
}

impl Looks {
    /// Looks for all `names` that the report draws.
    pub(super) fn of<'a>(names: impl Iterator<Item = &'a str>) -> Looks {
        let mut others: Vec<String> = Vec::new();
        for name in names.filter(|name| known(name).is_none()) {
            if others.iter().all(|other| other != name) {
                others.push(name.to_owned());
            }
        }
        Looks { others }
    }

    /// What `name` looks like.
    pub(super) fn look(&self, name: &str) -> Look {
        known(name).unwrap_or_else(|| {
            let at = self.others.iter().position(|other| other == name).unwrap_or(0);
            let series = &OTHERS[at % OTHERS.len()];
            let again = at >= OTHERS.len();
            look(series, again)
        })
    }
}

/// The look of a name in the table, or of one that is of a kind in the table.
fn known(name: &str) -> Option<Look> {
    if let Some(exact) = SERIES.iter().find(|series| series.name == name) {
        return Some(look(exact, false));
    }
    let words: Vec<&str> = name.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let kind = SERIES.iter().find(|series| words.contains(&series.name))?;
    // The player is the first of two; the recorder is the other.
    Some(look(kind, !words.contains(&"play")))
}

fn look(series: &Series, hollow: bool) -> Look {
    let dash = if hollow { series.other_dash } else { series.dash };
    Look { colour: series.colour, mark: series.mark, hollow, dash }
}

/// The classes of all colours, as a style sheet.
pub(super) fn css(dark: bool) -> String {
    let mut out = String::new();
    for (name, on_light, on_dark) in COLOURS {
        let colour = if dark { on_dark } else { on_light };
        let ink = if luminance(colour) > 0.22 { "#111" } else { "#fff" };
        let _ = writeln!(
            out,
            ".f-{name}{{fill:{colour}}}.s-{name}{{stroke:{colour}}}svg .on-{name}{{fill:{ink};stroke:none}}"
        );
    }
    out
}

/// Red, green and blue of `#rrggbb`, as light: from 0 to 1, linear.
fn light(colour: &str) -> [f64; 3] {
    let digits = u32::from_str_radix(colour.trim_start_matches('#'), 16).expect("six hexadecimal digits");
    [16, 8, 0].map(|shift| {
        let value = f64::from(digits >> shift & 255) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    })
}

/// The relative luminance of a colour.
fn luminance(colour: &str) -> f64 {
    let [r, g, b] = light(colour);
    0.2126 * r + 0.7152 * g + 0.0722 * b
}

#[cfg(test)]
mod tests {
    use super::*;
    use pageferry_lab::plot::CAUSES;

    /// Lightness and the two hues of OKLab, as a deuteranope sees them (Machado, Oliveira and Fernandes, 2009).
    fn seen(colour: &str) -> [f64; 3] {
        let [r, g, b] = light(colour);
        let r2 = 0.367322 * r + 0.860646 * g - 0.227968 * b;
        let g2 = 0.280085 * r + 0.672501 * g + 0.047413 * b;
        let b2 = -0.011820 * r + 0.042940 * g + 0.968881 * b;
        let l = (0.4122214708 * r2 + 0.5363325363 * g2 + 0.0514459929 * b2).cbrt();
        let m = (0.2119034982 * r2 + 0.6806995451 * g2 + 0.1073969566 * b2).cbrt();
        let s = (0.0883024619 * r2 + 0.2817188376 * g2 + 0.6299787005 * b2).cbrt();
        [
            0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
            1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
            0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s,
        ]
    }

    fn apart(a: &str, b: &str) -> f64 {
        let (a, b) = (seen(a), seen(b));
        (0..3).map(|i| (a[i] - b[i]).powi(2)).sum::<f64>().sqrt()
    }

    fn shades(name: &str) -> [&'static str; 2] {
        let found = COLOURS.iter().find(|colour| colour.0 == name);
        found.map(|(_, light, dark)| [*light, *dark]).unwrap_or_else(|| panic!("no colour {name}"))
    }

    /// What is drawn in one figure.
    const TOGETHER: [&[&str]; 12] = [
        &["copy", "transfer", "loan", "both", "auto"],
        &["copy", "transfer", "map", "auto", "copy without sf_buf"],
        &["pass", "pass, touched", "socket", "socket, touched", "auto", "auto, touched"],
        &["pass and loan", "copy", "auto"],
        &["play, copy", "play, loan", "play, auto", "record, copy", "record, transfer", "record, auto"],
        &["loan", "transfer", "pass", "look-up", "space found", "amap freed", "fork"],
        &["share", "copy", "donate", "donate with zero-fill", "loan"],
        &["anflush", "munmap", "replaced", "area, anflush", "area, munmap"],
        &["give", "lend", "transfer and write", "copy to a mapping", "copy"],
        &["copy", "loan", "both", "container", "fbuf", "fbuf, uncached", "Mach", "Mach, move"],
        &["original", "sf_buf", "sf_buf-shared"],
        &["local, entry in cache", "local, entry in memory", "remote"],
    ];

    #[test]
    fn what_is_drawn_together_differs_in_mark_in_dash_and_to_a_deuteranope_in_colour() {
        let looks = Looks::of(std::iter::empty());
        for names in TOGETHER {
            for (i, a) in names.iter().enumerate() {
                for b in &names[..i] {
                    let (x, y) = (looks.look(a), looks.look(b));
                    assert!((x.mark, x.hollow) != (y.mark, y.hollow), "{a} and {b} have one mark");
                    assert_ne!(x.dash, y.dash, "{a} and {b}");
                    if x.colour == y.colour {
                        assert!(x.hollow != y.hollow, "{a} and {b}");
                        continue;
                    }
                    for (one, other) in shades(x.colour).into_iter().zip(shades(y.colour)) {
                        let apart = apart(one, other);
                        assert!(apart > 0.05, "{a} {one} and {b} {other}: {apart:.3}");
                    }
                }
            }
        }
    }

    #[test]
    fn neighbours_in_a_stack_are_told_apart() {
        let near: Vec<_> = CAUSES.windows(2).map(|pair| (pair[0].0, pair[1].0)).collect();
        for (a, b) in near {
            for (one, other) in shades(a).into_iter().zip(shades(b)) {
                assert!(apart(one, other) > 0.05, "{a} {one} and {b} {other}: {:.3}", apart(one, other));
            }
        }
        let mut signs: Vec<&str> = CAUSES.iter().map(|cause| cause.1).collect();
        signs.sort_unstable();
        signs.dedup();
        assert_eq!(signs.len(), CAUSES.len(), "a sign twice");
    }

    #[test]
    fn no_colour_has_two_meanings() {
        for (i, (name, light, dark)) in COLOURS.iter().enumerate() {
            for (other, light2, dark2) in &COLOURS[..i] {
                assert!(name != other && light != light2 && dark != dark2, "{name} and {other}");
            }
        }
        for series in SERIES.iter().chain(&OTHERS) {
            shades(series.colour);
        }
    }

    #[test]
    fn lines_stand_out_from_the_page() {
        let contrast = |a: f64, b: f64| (a.max(b) + 0.05) / (a.min(b) + 0.05);
        for series in SERIES.iter().chain(&OTHERS).filter(|s| s.colour != "local-cached") {
            let [on_light, on_dark] = shades(series.colour);
            assert!(contrast(luminance(on_light), 1.0) > 2.7, "{}", series.colour);
            assert!(contrast(luminance(on_dark), luminance("#14191d")) > 3.0, "{}", series.colour);
        }
    }

    #[test]
    fn a_name_keeps_its_look_and_a_new_one_gets_one_of_its_own() {
        let looks = Looks::of(["pentium-pro", "copy", "xeon-up", "pentium-pro"].into_iter());
        assert_eq!(looks.look("copy"), looks.look("play, copy"));
        assert_eq!(looks.look("pass, touched").colour, looks.look("pass").colour);
        assert!(looks.look("pass, touched").hollow && !looks.look("pass").hollow);
        assert_ne!(looks.look("pentium-pro").mark, looks.look("xeon-up").mark);
    }
}
