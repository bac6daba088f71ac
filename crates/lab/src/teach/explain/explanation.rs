//! Mechanisms by name, and running one: on its own machine and kernel, or on others.

use super::stage::{Counterexample, Mechanism, Stage, Step};
use super::{accessed_bit, files, mapping, memory, pass, pipe, sockets};
use crate::error::LabError;
use crate::files::{KernelChoice, MachineChoice, Settings};
use crate::run::{Law, Schedule, Testbed};
use pageferry_kernel::{Program, User};
use pageferry_model::{Model, nearest};
use serde::Serialize;

/// All mechanisms, in the order in which they build on each other.
pub fn all() -> impl Iterator<Item = &'static Mechanism> {
    [memory::ALL, files::ALL, sockets::ALL, pass::ALL, mapping::ALL, accessed_bit::ALL, pipe::ALL]
        .into_iter()
        .flatten()
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
    /// The machine.
    pub machine: String,
    /// The kernel.
    pub kernel: String,
    /// The steps, in order.
    pub steps: Vec<Step>,
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

/// Runs a mechanism's program, on its own machine and kernel or on others. On its own kernel, its counterexample goes before.
///
/// # Errors
/// A machine or kernel that does not exist, or on which the program cannot run. A broken law is not an error here.
pub fn explain(
    mechanism: &'static Mechanism,
    machine: Option<&str>,
    kernel: Option<&str>,
) -> Result<Explanation, LabError> {
    let mut told = run(mechanism, machine, kernel.unwrap_or(mechanism.kernel))?.explanation;
    if let (None, Some(counterexample)) = (kernel, &mechanism.counterexample) {
        let faulty = run(mechanism, machine, counterexample.kernel)?;
        told = beside(counterexample, faulty, told);
    }
    Ok(told)
}

/// A run, and the uses of stale translations in it.
struct Ran {
    explanation: Explanation,
    stale: Vec<String>,
}

/// The law that a counterexample is there to break.
const STALE: &str = "no use of a stale translation";

/// `faulty` before `sound`. It must have used a stale translation, and broken no other law.
fn beside(counterexample: &Counterexample, faulty: Ran, sound: Explanation) -> Explanation {
    let Ran { explanation: faulty, stale } = faulty;
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

fn run(mechanism: &'static Mechanism, machine: Option<&str>, kernel: &str) -> Result<Ran, LabError> {
    let settings = Settings::parse(mechanism.set)?;
    let chosen = settings.machine(MachineChoice::find(machine.unwrap_or(mechanism.machine))?)?;
    let kernel = settings.kernel(KernelChoice::find(kernel)?)?;
    let testbed = Testbed::new(&chosen, &kernel, Schedule::Timed, 1)?;
    let stage = Stage::new(&testbed.model);
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
        testbed.model.snapshot().check(),
    ));
    let explanation = Explanation {
        name: mechanism.name,
        title: mechanism.title,
        text: mechanism.text,
        source: mechanism.source,
        machine: chosen.name,
        kernel: kernel.name,
        steps: state.steps.clone(),
        laws,
    };
    Ok(Ran { explanation, stale: finish.stale })
}
