//! The answer that a report opens with: from where on each mechanism pays, then and now.
//!
//! A row for each mechanism that an experiment holds against another. Left is `always`, right is `never`, and between
//! them are the sizes from which on it is faster at all larger ones that were run. A circle is a machine of the paper's
//! time, or any other where machines or experiments are one's own, a square the present one; what leads from one to the
//! other is the move of the answer. What is over something
//! else than sizes (a clock, a load) has its value in words. The title is counted from the rows.

use super::data::Table;
use super::figure::{Figure, Key, both};
use super::looks::{Look, Mark};
use super::papers::Judgement;
use super::scale::LogScale;
use super::svg::{Anchor, Svg, Width, wrapped};
use super::then_now::{axis_of, place};
use pageferry_lab::judge::{Crossover, NOW, Pays, Reproduction};
use pageferry_lab::text::size;
use std::cmp::Ordering;

const THEN: Look = Look { colour: "then", mark: Mark::Circle, hollow: true, dash: "2.5 3" };
const TODAY: Look = Look { colour: "today", mark: Mark::Square, hollow: false, dash: "" };

/// What machines are called: the present one, and the others.
struct Words {
    then: &'static str,
    now: &'static str,
    /// The head of the column with the names of the others.
    machines: &'static str,
    subtitle: &'static str,
    is_of_the_time: bool,
}

/// Where all the others are machines of the papers' time.
const OF_PAPERS: Words = Words {
    then: "then",
    now: "now",
    machines: "machines of the time",
    subtitle: "From which size on a mechanism is faster than what it replaces, at all larger ones that were run: \
               then, on machines of the papers' time, and now, on a current server",
    is_of_the_time: true,
};

/// Where experiments or machines are one's own.
const OF_OWN: Words = Words {
    then: "on others",
    now: "on today",
    machines: "other machines",
    subtitle: "From which size on a mechanism is better than what it replaces, at all larger ones that were run: on \
               the machine `today`, and on the others",
    is_of_the_time: false,
};

/// The figure's name.
pub(super) const ID: &str = "pays";

/// A mechanism, then and now.
struct Row<'a> {
    title: &'a str,
    /// On the machines of the time, from where it pays first to where it pays last.
    then: Vec<&'a Crossover>,
    now: Option<&'a Crossover>,
}

/// What one crossover says, by how early it pays.
fn earlier(a: &Crossover, b: &Crossover) -> Ordering {
    let rank = |c: &Crossover| match c.pays {
        Pays::Always => (0, 0.0),
        Pays::From(x) => (1, x),
        Pays::Never => (2, 0.0),
    };
    let (a, b) = (rank(a), rank(b));
    a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
}

impl<'a> Row<'a> {
    fn first(&self) -> &'a Crossover {
        self.then.first().copied().or(self.now).expect("a row has a crossover")
    }

    /// The mechanism and what it is held against.
    fn name(&self) -> String {
        let c = self.first();
        format!("{} over {}", c.mechanism, c.over)
    }

    /// The experiment, what it is over, and the condition.
    fn about(&self) -> String {
        let c = self.first();
        let by = axis_of(c).map_or_else(String::new, |axis| format!(", by {axis}"));
        let holds_if = c.holds_if.as_ref().map_or_else(String::new, |holds_if| format!(", if {holds_if}"));
        format!("{}{by}{holds_if}", self.title)
    }

    /// From where on it paid, and the machines where it was run.
    fn then_words(&self) -> String {
        match self.then.as_slice() {
            [] => "not run".into(),
            [first, .., last] if earlier(first, last).is_ne() => {
                format!("{} to {}", short(first), short(last))
            }
            [first, ..] => short(first),
        }
    }

    fn now_words(&self) -> String {
        self.now.map_or_else(|| "not run".into(), short)
    }
}

/// `always`, `8K`, `never`.
fn short(c: &Crossover) -> String {
    match c.pays {
        Pays::Always => "always".into(),
        Pays::From(x) => place(x, &c.unit),
        Pays::Never => "never".into(),
    }
}

fn pays(c: &Crossover) -> bool {
    c.pays != Pays::Never
}

/// The rows of the experiments of one paper, in their order.
fn rows<'a>(of: &'a Reproduction, paper: &str) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = Vec::new();
    for experiment in of.experiments.iter().filter(|e| e.file.paper_name() == paper) {
        for c in of.crossovers.iter().filter(|c| c.experiment == experiment.name) {
            let key =
                |c: &Crossover| (c.experiment.clone(), c.x.clone(), c.mechanism.clone(), c.over.clone());
            let at = rows.iter().position(|row| key(row.first()) == key(c)).unwrap_or_else(|| {
                rows.push(Row { title: &experiment.file.title, then: Vec::new(), now: None });
                rows.len() - 1
            });
            if c.machine == NOW { rows[at].now = Some(c) } else { rows[at].then.push(c) }
        }
    }
    rows.iter_mut().for_each(|row| row.then.sort_by(|a, b| earlier(a, b)));
    rows
}

/// The figure, where anything is held against anything else. Papers are in order of weight; experiments of none last.
pub(super) fn figure(of: &Reproduction, papers: &[Judgement<'_>]) -> Option<Figure> {
    let groups = papers.iter().map(|j| (j.paper.short.as_str(), rows(of, j.name)));
    let groups: Vec<(&str, Vec<Row<'_>>)> =
        groups.chain([("no paper", rows(of, ""))]).filter(|group| !group.1.is_empty()).collect();
    let all = || groups.iter().flat_map(|group| &group.1);
    all().next()?;
    let is_of_the_time = of.own().is_empty() && of.machines.iter().all(|machine| machine.is_built_in());
    let words = if is_of_the_time { &OF_PAPERS } else { &OF_OWN };
    let title = finding(&all().collect::<Vec<_>>(), words);
    let (wide, narrow) = both(|width| draw(width, &groups, &title, words));
    Some(Figure {
        id: ID.into(),
        experiment: String::new(),
        title,
        subtitle: words.subtitle.into(),
        wide,
        narrow,
        legend: vec![Key::mark(&THEN, words.then), Key::mark(&TODAY, words.now)],
        note: "Always is from the smallest on that was run, never is not even at the largest; nothing is \
               interpolated. What is over a clock, a load or a wire has its value in words."
            .into(),
        table: table(&groups, words),
        data: data(&groups),
    })
}

/// What the rows say, counted: how many mechanisms pay, then and now, and for how many it takes more.
fn finding(rows: &[&Row<'_>], words: &Words) -> String {
    let both: Vec<(&Crossover, &Crossover)> =
        rows.iter().filter_map(|row| Some((*row.then.first()?, row.now?))).collect();
    if both.is_empty() {
        let on = match rows.iter().any(|row| row.now.is_some()) {
            true if words.is_of_the_time => "today",
            true => words.now,
            false => {
                if words.is_of_the_time {
                    "on machines of the time"
                } else {
                    "on these machines"
                }
            }
        };
        let paying = rows.iter().filter(|row| pays(row.first())).count();
        return format!("{paying} of {} mechanisms pay {on}", rows.len());
    }
    let n = both.len();
    let then = both.iter().filter(|(then, _)| pays(then)).count();
    let now = both.iter().filter(|(_, now)| pays(now)).count();
    if !words.is_of_the_time {
        return format!("{then} of {n} mechanisms pay on other machines, {now} on today");
    }
    let moved = |which: Ordering| {
        let of = both.iter().filter(|(then, now)| pays(then) && pays(now));
        of.filter(|(then, now)| earlier(now, then) == which).count()
    };
    // What is over a clock or a load has values, and no sizes.
    let by_size = both.iter().all(|(then, _)| then.unit == "bytes" || then.pays == Pays::Always);
    let what = if by_size { "sizes" } else { "values" };
    let shift = match (moved(Ordering::Greater), moved(Ordering::Less)) {
        (0, 0) => String::new(),
        (later, 0) => format!(", {later} of them only from larger {what} on"),
        (0, sooner) => format!(", {sooner} of them from smaller {what} on"),
        (later, sooner) => format!(", {later} of them only from larger {what} on and {sooner} from smaller"),
    };
    format!("{then} of {n} mechanisms paid then; today {now} do{shift}")
}

type Groups<'a, 'b> = [(&'b str, Vec<Row<'a>>)];

fn table(groups: &Groups<'_, '_>, words: &Words) -> Table {
    let head = ["mechanism", "experiment", words.machines, words.then, "today"].map(String::from).to_vec();
    let row = |row: &Row<'_>| {
        let machines: Vec<&str> = row.then.iter().map(|c| c.machine.as_str()).collect();
        vec![row.name(), row.about(), machines.join(", "), row.then_words(), row.now_words()]
    };
    Table { head, rows: groups.iter().flat_map(|group| &group.1).map(row).collect() }
}

fn data(groups: &Groups<'_, '_>) -> Table {
    let head = ["paper", "experiment", "mechanism", "over", "machine", "x", "unit", "pays", "from"];
    let of = |paper: &str, c: &Crossover| {
        let (pays, from) = match c.pays {
            Pays::Always => ("always", String::new()),
            Pays::From(x) => ("from", x.to_string()),
            Pays::Never => ("never", String::new()),
        };
        let cells = [paper, &c.experiment, &c.mechanism, &c.over, &c.machine, &c.x, &c.unit, pays, &from];
        cells.map(String::from).to_vec()
    };
    let rows = groups.iter().flat_map(|(paper, rows)| {
        rows.iter().flat_map(move |row| row.then.iter().copied().chain(row.now).map(move |c| of(paper, c)))
    });
    Table { head: head.map(String::from).to_vec(), rows: rows.collect() }
}

const LINE_PIXELS: f64 = 15.0;
const AXIS_PIXELS: f64 = 44.0;
const GROUP_PIXELS: f64 = 30.0;

/// Where things are, for a width.
struct Layout {
    width: Width,
    /// The room for names, at the left.
    names: f64,
    always: f64,
    /// The sizes, from and to.
    sizes: (f64, f64),
    never: f64,
    /// Where the values are written.
    values: f64,
}

impl Layout {
    fn of(width: Width) -> Layout {
        match width {
            Width::Wide => Layout {
                width,
                names: 276.0,
                always: 304.0,
                sizes: (338.0, 530.0),
                never: 562.0,
                values: 594.0,
            },
            Width::Narrow => Layout {
                width,
                names: 326.0,
                always: 20.0,
                sizes: (48.0, 180.0),
                never: 208.0,
                values: 236.0,
            },
        }
    }

    /// The name of a row and what it is about, in lines; the first are the name.
    fn lines(&self, row: &Row<'_>) -> (Vec<String>, Vec<String>) {
        // What it is about is in small letters.
        (wrapped(&row.name(), self.names), wrapped(&row.about(), 1.1 * self.names))
    }

    /// How high a row is: its words, and on narrow pages the plot below.
    fn row(&self, row: &Row<'_>) -> f64 {
        let (name, about) = self.lines(row);
        let words = LINE_PIXELS * (name.len() + about.len()) as f64;
        match self.width {
            Width::Wide => words + 8.0,
            Width::Narrow => words + 44.0,
        }
    }
}

fn draw(width: Width, groups: &Groups<'_, '_>, label: &str, words: &Words) -> String {
    let layout = Layout::of(width);
    let sizes =
        groups.iter().flat_map(|group| &group.1).flat_map(|row| row.then.iter().copied().chain(row.now));
    let sizes = sizes.filter_map(|c| match c.pays {
        Pays::From(x) if c.unit == "bytes" => Some(x),
        _ => None,
    });
    let range = sizes.fold((4096.0, 65536.0), |(min, max): (f64, f64), x| (min.min(x), max.max(x)));
    let scale = LogScale::new(range, layout.sizes.0, layout.sizes.1 - layout.sizes.0);
    let heights = groups.iter().map(|g| GROUP_PIXELS + g.1.iter().map(|row| layout.row(row)).sum::<f64>());
    let bottom = AXIS_PIXELS + heights.sum::<f64>();
    let mut svg = Svg::new(width.pixels());
    draw_axis(&mut svg, &layout, &scale);
    let mut y = AXIS_PIXELS;
    for (paper, rows) in groups {
        svg.text(0.0, y + 21.0, "label", Anchor::Start, paper);
        y += GROUP_PIXELS;
        for row in rows {
            draw_row(&mut svg, (&layout, &scale, words), row, y);
            y += layout.row(row);
        }
    }
    svg.finish(bottom + 6.0, label)
}

fn draw_axis(svg: &mut Svg, layout: &Layout, scale: &LogScale) {
    let middle = (layout.sizes.0 + layout.sizes.1) / 2.0;
    svg.text(middle, 12.0, "axis", Anchor::Middle, "pays from a size of, bytes (log)");
    let y = AXIS_PIXELS - 14.0;
    svg.text(layout.always, y, "tick", Anchor::Middle, "always");
    svg.text(layout.never, y, "tick", Anchor::Middle, "never");
    let ticks: Vec<f64> = scale.binary_ticks().collect();
    let every = (ticks.len() as f64 * 40.0 / (layout.sizes.1 - layout.sizes.0)).ceil().max(1.0) as usize;
    for tick in ticks.into_iter().step_by(every) {
        svg.text(scale.at(tick), y, "tick", Anchor::Middle, &size(tick));
    }
}

fn draw_row(svg: &mut Svg, (layout, scale, called): (&Layout, &LogScale, &Words), row: &Row<'_>, top: f64) {
    let (name, about) = layout.lines(row);
    let mut below = top;
    for line in &name {
        below += LINE_PIXELS;
        svg.text(0.0, below, "what", Anchor::Start, line);
    }
    for line in &about {
        below += LINE_PIXELS;
        svg.text(0.0, below, "tick", Anchor::Start, line);
    }
    let middle = match layout.width {
        Width::Wide => top + layout.row(row) / 2.0,
        Width::Narrow => below + 22.0,
    };
    svg.line((layout.always - 14.0, middle), (layout.never + 14.0, middle), "rail");
    for edge in [layout.sizes.0 - 6.0, layout.sizes.1 + 6.0] {
        svg.line((edge, middle - 12.0), (edge, middle + 12.0), "grid");
    }
    // What is over something else than a size has no place on the axis.
    let at = |c: &Crossover| match c.pays {
        Pays::Always => Some(layout.always),
        Pays::From(x) if c.unit == "bytes" => Some(scale.at(x)),
        Pays::From(_) => None,
        Pays::Never => Some(layout.never),
    };
    if let (Some(from), Some(to)) = (row.then.first().and_then(|c| at(c)), row.now.and_then(at)) {
        svg.trend(&[(from, middle), (to, middle)], &TODAY);
    }
    let hint = |c: &Crossover| format!("{}, {}: {}", row.name(), c.machine, short(c));
    let words = (layout.sizes.0 + layout.sizes.1) / 2.0;
    // Where both are at one place, the square is in the circle.
    let then = row.then.iter().map(|c| (c, THEN, 6.5));
    for (c, look, radius) in then.chain(row.now.iter().map(|c| (c, TODAY, 3.6))) {
        match at(c) {
            Some(x) => svg.mark((x, middle), radius, &look, &hint(c)),
            None => svg.text(words, middle + 4.0, "value", Anchor::Middle, &format!("from {}", short(c))),
        }
    }
    svg.text(
        layout.values,
        middle - 3.0,
        "tick",
        Anchor::Start,
        &format!("{} {}", called.then, row.then_words()),
    );
    svg.text(
        layout.values,
        middle + 12.0,
        "value",
        Anchor::Start,
        &format!("{} {}", called.now, row.now_words()),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crossover(machine: &str, pays: Pays<f64>) -> Crossover {
        Crossover {
            experiment: "pipe".into(),
            mechanism: "loan".into(),
            over: "copy".into(),
            holds_if: None,
            machine: machine.into(),
            x: "size_bytes".into(),
            unit: "bytes".into(),
            pays,
            gain_at_largest: 1.0,
            better: pageferry_lab::files::Better::More,
        }
    }

    /// Then, and now.
    type Answer = (Option<Pays<f64>>, Option<Pays<f64>>);

    /// What is found of mechanisms that pay like this.
    fn found(answers: &[Answer]) -> String {
        let made: Vec<_> = (answers.iter())
            .map(|(then, now)| (then.map(|p| crossover("old", p)), now.map(|p| crossover(NOW, p))))
            .collect();
        let rows: Vec<Row<'_>> = (made.iter())
            .map(|(then, now)| Row { title: "A pipe", then: then.iter().collect(), now: now.as_ref() })
            .collect();
        finding(&rows.iter().collect::<Vec<_>>(), &OF_PAPERS)
    }

    #[test]
    fn the_title_is_what_the_rows_say() {
        let (always, never, from) = (Pays::Always, Pays::Never, Pays::From);
        let both = |then, now| (Some(then), Some(now));
        let rows = [both(always, never), both(from(8192.0), from(32768.0)), both(from(4096.0), from(4096.0))];
        assert_eq!(
            found(&rows),
            "3 of 3 mechanisms paid then; today 2 do, 1 of them only from larger sizes on"
        );
        let rows = [both(never, always), both(from(8192.0), always)];
        assert_eq!(found(&rows), "1 of 2 mechanisms paid then; today 2 do, 1 of them from smaller sizes on");
        let rows = [both(always, from(1.0)), both(from(8.0), always), both(never, never)];
        let told =
            "2 of 3 mechanisms paid then; today 2 do, 1 of them only from larger sizes on and 1 from smaller";
        assert_eq!(found(&rows), told);
        assert_eq!(found(&[(None, Some(always)), (None, Some(never))]), "1 of 2 mechanisms pay today");
        assert_eq!(found(&[(Some(never), None)]), "0 of 1 mechanisms pay on machines of the time");
    }

    #[test]
    fn always_is_earliest_and_never_is_latest() {
        let order = [Pays::Always, Pays::From(1.0), Pays::From(2.0), Pays::Never];
        let all = order.map(|pays| crossover("old", pays));
        assert!(all.windows(2).all(|pair| earlier(&pair[0], &pair[1]).is_lt()));
    }
}
