//! Mechanisms by name, and running one: on its own machine and kernel, or on others.

use super::stage::{self, Counterexample, Mechanism, More, Stage, Step, Table, Variant};
use super::{
    accessed_bit, blocks, far_end, files, ispc, mapping, memory, network, pass, pipe, refill, sockets,
};
use pageferry_kernel::{Program, User};
use pageferry_lab::LabError;
use pageferry_lab::files::{KernelChoice, MachineChoice, Settings};
use pageferry_lab::record::Law;
use pageferry_lab::run::{Choices, Testbed};
use pageferry_model::Model;
use pageferry_sourced::nearest;
use serde::Serialize;

/// All mechanisms, in the order in which they build on each other.
pub fn all() -> impl Iterator<Item = &'static Mechanism> {
    let rooms =
        [memory::ALL, files::ALL, sockets::ALL, pass::ALL, mapping::ALL, accessed_bit::ALL, pipe::ALL];
    rooms.into_iter().chain([network::ALL, refill::ALL, blocks::ALL, ispc::ALL]).flatten()
}

/// The mechanism called `name`.
///
/// # Errors
/// [`LabError::Unknown`] with the nearest name.
pub fn find(name: &str) -> Result<&'static Mechanism, LabError> {
    let names = || all().map(|mechanism| mechanism.name);
    all().find(|mechanism| mechanism.name == name).ok_or_else(|| LabError::Unknown {
        kind: "mechanism",
        name: name.to_owned(),
        nearest: nearest(name, names()).map(str::to_owned),
        known: names().map(str::to_owned).collect(),
    })
}

/// A mechanism with its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The mechanism.
    pub name: &'static str,
    /// What it is, in a line.
    pub title: &'static str,
    /// What it is for.
    pub text: &'static str,
    /// Papers and sections.
    pub source: &'static str,
    /// The machine; where there are several runs, the machines.
    pub machine: String,
    /// The kernel.
    pub kernel: String,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// What several runs end with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<Table>,
    /// The laws of the run.
    pub laws: Vec<Law>,
}

impl Explanation {
    /// The laws that do not hold, and why.
    pub fn broken(&self) -> Vec<String> {
        let broken = self.laws.iter().filter(|law| !law.held);
        broken.map(|law| format!("{}: {}", law.name, law.fault.as_deref().unwrap_or("broken"))).collect()
    }
}

/// Runs a mechanism's program, on its own machine and kernel or on others. On its own kernel, its counterexample goes
/// before.
///
/// # Errors
/// A machine or kernel that does not exist, or on which the program cannot run. A broken law is not an error here.
pub fn explain(
    mechanism: &'static Mechanism,
    machine: Option<&str>,
    kernel: Option<&str>,
) -> Result<Explanation, LabError> {
    if let Some(more) = mechanism.more {
        return side_by_side(mechanism, more, machine, kernel.unwrap_or(mechanism.kernel));
    }
    let machine = machine.unwrap_or(mechanism.machine);
    let mut told = run(mechanism, machine, kernel.unwrap_or(mechanism.kernel), mechanism.set)?.explanation;
    if let (None, Some(counterexample)) = (kernel, &mechanism.counterexample) {
        let faulty = run(mechanism, machine, counterexample.kernel, mechanism.set)?;
        told = beside(counterexample, faulty, told);
    }
    Ok(told)
}

/// A run, and the uses of stale translations in it.
struct Ran {
    explanation: Explanation,
    stale: Vec<String>,
    found: stage::Ran,
}

/// All runs of a mechanism that has several: the steps of those that are told, one run behind the other, and the table.
/// On a machine that was asked for, each kernel runs once.
fn side_by_side(
    mechanism: &'static Mechanism,
    more: &More,
    machine: Option<&str>,
    kernel: &str,
) -> Result<Explanation, LabError> {
    let (mut told, mut found): (Option<Explanation>, Vec<stage::Ran>) = (None, Vec::new());
    let mut runs: Vec<&Variant> = Vec::new();
    for variant in more.runs {
        if machine.is_none() || runs.iter().all(|other| other.set != variant.set) {
            runs.push(variant);
        }
    }
    for variant in runs {
        let Ran { explanation, found: figures, .. } =
            run(mechanism, machine.unwrap_or(variant.machine), kernel, variant.set)?;
        let Explanation { machine, mut steps, laws, .. } = explanation;
        let of = format!("{machine}, {}", variant.set.join(", "));
        let laws = laws.into_iter().map(|law| Law { name: format!("{}, on {of}", law.name), ..law });
        if let Some(first) = steps.first_mut() {
            first.section = Some(format!("{machine}, {}", variant.words.unwrap_or_default()));
        }
        steps.retain(|_| variant.words.is_some());
        found.push(figures);
        told = Some(match told {
            None => Explanation { machine, steps, laws: laws.collect(), ..explanation },
            Some(mut told) => {
                if !told.machine.split(" and ").any(|other| other == machine) {
                    told.machine += &format!(" and {machine}");
                }
                told.steps.extend(steps);
                told.laws.extend(laws);
                told
            }
        });
    }
    let mut told = told.expect("a mechanism has a run");
    let (table, laws) = (more.table)(&found)?;
    told.table = Some(table);
    told.laws.extend(laws);
    Ok(told)
}

/// The law that a counterexample is there to break.
const STALE: &str = "no use of a stale translation";

/// `faulty` before `sound`. It must have used a stale translation, and broken no other law.
fn beside(counterexample: &Counterexample, faulty: Ran, sound: Explanation) -> Explanation {
    let Ran { explanation: faulty, stale, .. } = faulty;
    let [before, after] = counterexample.words;
    let said = |word: &'static str| move |step: Step| Step { what: format!("{word}: {}", step.what), ..step };
    let used = if stale.is_empty() { Err("none was used".to_owned()) } else { Ok(()) };
    let laws = (sound.laws.into_iter())
        .chain([Law::new(&format!("a stale translation is used under {}", faulty.kernel), used)])
        .chain(faulty.laws.into_iter().filter(|law| law.name != STALE));
    Explanation {
        laws: laws.collect(),
        steps: (faulty.steps.into_iter().map(said(before)))
            .chain(sound.steps.into_iter().map(said(after)))
            .collect(),
        ..sound
    }
}

fn run(mechanism: &'static Mechanism, machine: &str, kernel: &str, set: &[&str]) -> Result<Ran, LabError> {
    let settings = Settings::parse(set)?;
    let chosen = settings.machine(MachineChoice::find(machine)?)?;
    let kernel = settings.kernel(KernelChoice::find(kernel)?)?;
    let mut testbed = Testbed::new(&chosen, &kernel, Choices::default())?;
    let stage = Stage::new(testbed.model(), chosen.config.tlb.data.entries.value as usize);
    if mechanism.far_end {
        far_end::attach(&mut testbed, &stage)?;
    }
    let (acting, program) = (stage.clone(), mechanism.program);
    let program: Program<Model> = Box::new(move |user: &User<Model>| {
        let result = program(&acting, user);
        acting.settle(result);
    });
    let finish = testbed.execute(mechanism.name, program)?;
    let state = stage.state.borrow();
    let mut laws = finish.laws;
    // Where a law is broken, a failure is its consequence; the counterexample's own law is broken by design.
    if let Some((what, errno)) = state.failed.filter(|_| laws.iter().all(|law| law.held || law.name == STALE))
    {
        return Err(testbed.incompatible(format!("{what}: {errno}")));
    }
    laws.push(Law::new("the run left what was promised", state.broken.clone()));
    laws.push(Law::new(
        "the causes of measured cycles sum to the measured time",
        testbed.model().snapshot().check(),
    ));
    let explanation = Explanation {
        name: mechanism.name,
        title: mechanism.title,
        text: mechanism.text,
        source: mechanism.source,
        machine: chosen.name.clone(),
        kernel: kernel.name.clone(),
        steps: state.steps.clone(),
        table: None,
        laws,
    };
    let found = stage::Ran { machine: chosen, kernel, figures: state.figures.clone() };
    Ok(Ran { explanation, stale: finish.stale, found })
}
