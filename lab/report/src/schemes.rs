//! The table of users and schemes: what each user of ephemeral mappings pays under each scheme on each machine, and for
//! what (sf_buf paper, 6.2): then, on the machines of the paper and others of its time, and now.

use pageferry_lab::judge::Reproduction;
use pageferry_lab::record::Record;
use pageferry_lab::text::number;
use serde::Serialize;

/// A user on a machine under a scheme.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SchemeRow {
    /// The experiment's name.
    pub experiment: String,
    /// Who uses mappings.
    pub user: String,
    /// The machine.
    pub machine: String,
    /// The kernel, and the scheme where it is not the kernel's own.
    pub scheme: String,
    /// Cycles a page.
    pub cycles: String,
    /// How many more pages in the same time than under `original`, in percent.
    pub gain: String,
    /// Of the cycles: into addresses.
    pub addresses: String,
    /// Into invalidations here.
    pub local: String,
    /// Into invalidations elsewhere, of the CPU that asks and of those that are asked.
    pub elsewhere: String,
    /// Into the mappings themselves.
    pub mappings: String,
}

const USER: &str = "user";
const SCHEME: &str = "kernel.ephemeral.scheme";
const CYCLES: &str = "elapsed_cycles_per_page";
/// What a page pays, by part; only runs of this experiment have all of them.
const PARTS: [&str; 4] =
    ["address_cycles_per_page", "local_cycles_per_page", "remote_cycles_per_page", "mapping_cycles_per_page"];

fn scheme(record: &Record) -> String {
    match record.settings.get(SCHEME) {
        Some(scheme) => format!("{}, {scheme}", record.kernel),
        None => record.kernel.clone(),
    }
}

/// What each user pays under each scheme, a user's machines one after the other and the current one last, as they
/// were run.
pub(super) fn scheme_rows(all: &Reproduction) -> Vec<SchemeRow> {
    let user = |r: &Record| r.settings.get(USER).map(ToString::to_string);
    let records: Vec<&Record> = all
        .firsts()
        .map(|run| &run.record)
        .filter(|r| user(r).is_some() && r.metric(PARTS[0]).is_some())
        .collect();
    let mut users: Vec<String> = records.iter().filter_map(|r| user(r)).collect();
    users.sort();
    users.dedup();
    let row = |r: &&Record| {
        let [addresses, local, elsewhere, mappings] = PARTS.map(|part| r.metric(part).map(number));
        let cycles = r.metric(CYCLES)?;
        let same = |o: &&&Record| {
            o.machine == r.machine
                && user(o) == user(r)
                && scheme(o) == "original"
                && o.experiment == r.experiment
        };
        let original = records.iter().find(same).and_then(|o| o.metric(CYCLES));
        let gain = original.filter(|_| cycles > 0.0 && scheme(r) != "original").map(|of| {
            let percent = 100.0 * (of / cycles - 1.0);
            format!("{percent:+.0} %").replace('-', "−").replace("−0 ", "0 ").replace("+0 ", "0 ")
        });
        Some(SchemeRow {
            experiment: r.experiment.clone(),
            user: user(r)?,
            machine: r.machine.clone(),
            scheme: scheme(r),
            cycles: number(cycles),
            gain: gain.unwrap_or_default(),
            addresses: addresses?,
            local: local?,
            elsewhere: elsewhere?,
            mappings: mappings?,
        })
    };
    let of = |name: &String| {
        records.iter().filter(|r| user(r).as_ref() == Some(name)).filter_map(row).collect::<Vec<_>>()
    };
    let mut rows: Vec<SchemeRow> = users.iter().flat_map(of).collect();
    let machines: Vec<String> = rows.iter().map(|row| row.machine.clone()).collect();
    let place = |row: &SchemeRow| {
        let machine = machines.iter().position(|machine| *machine == row.machine);
        (row.user.clone(), row.machine == pageferry_lab::judge::NOW, machine)
    };
    rows.sort_by_key(place);
    rows
}
