//! What a lesson has found, for a report: a title and a few paragraphs, with the numbers of its run.

use super::explain::{Explanation, Step, explain, find};
use pageferry_lab::LabError;
use pageferry_lab::judge::{Finding, Reproduction};
use pageferry_lab::text::grouped;

/// What lessons find about the papers of `of`.
///
/// # Errors
/// When a law of a lesson's run is broken.
pub fn findings(of: &Reproduction) -> Result<Vec<Finding>, LabError> {
    of.papers.contains_key("sf-buf").then(accessed_bit).into_iter().collect()
}

/// The accessed-bit rule of the sf_buf paper, as it is printed and as it holds: runs the lesson `accessed-bit`.
///
/// # Errors
/// When a law of the lesson's run is broken: then nothing is found.
pub fn accessed_bit() -> Result<Finding, LabError> {
    let told = explain(find("accessed-bit")?, None, None)?;
    let broken = told.broken();
    if !broken.is_empty() {
        return Err(LabError::Law { run: format!("{} on {}", told.name, told.machine), broken });
    }
    let (printed, holds) = told.steps.split_at(told.steps.len() / 2);
    Ok(Finding {
        title: "The accessed-bit rule of sf_buf, as printed, lets a CPU read another page".into(),
        paragraphs: vec![
            told.text.to_owned(),
            format!("On {}, with a cache of one address and three pages: {}", told.machine, story(printed)),
            last(printed),
            format!("By the rule that holds: {}", last(holds)),
            cost(&told, printed, holds),
        ],
    })
}

/// The steps before the last, without the word for the rule.
fn story(steps: &[Step]) -> String {
    let before = steps.split_last().map_or(&[][..], |(_, before)| before);
    before.iter().map(|step| plain(&step.what)).collect::<Vec<_>>().join(" ")
}

/// The last step, and what was seen of it.
fn last(steps: &[Step]) -> String {
    let Some(step) = steps.last() else { return String::new() };
    let notes: Vec<_> = step.notes.iter().map(|note| capital(note) + ".").collect();
    format!("{} {}", plain(&step.what), notes.join(" "))
}

fn cost(told: &Explanation, printed: &[Step], holds: &[Step]) -> String {
    // What the other CPU does meanwhile is the same in both.
    let of = |steps: &[Step]| {
        let step = steps.last().expect("a lesson has steps");
        let spent = ["ephemeral", "invalidate_local", "tlb_miss"].map(|cause| step.by_cause.get(cause));
        (step.count("tlb_invalidations_local"), spent.into_iter().flatten().sum::<u64>())
    };
    let ((printed_local, printed_cycles), (local, cycles)) = (of(printed), of(holds));
    format!(
        "It costs {local} local invalidation where the printed rule has {printed_local}, and {} cycles instead of {}; \
         a mapping that no CPU can hold, as each is at first, costs neither. All results here are those of the rule \
         that holds ({}).",
        grouped(cycles as i64),
        grouped(printed_cycles as i64),
        told.kernel
    )
}

/// A step's words without the rule in front.
fn plain(what: &str) -> &str {
    what.split_once(": ").map_or(what, |(_, what)| what)
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
