//! What is run: words of the form `name=value`, on the command line of the image and in the hands of the model.

use crate::programs::Experiment;
use crate::random::Programs;
use pageferry_ephemeral::{AccessedRule, Scheme};
use pageferry_hal::CpuSet;
use pageferry_hal::tap::Event;
use pageferry_kernel::{KernelDefect, PipeKind, Planted};
use pageferry_pmap::PmapDefect;
pub use pageferry_workloads::checked::BadWord;

/// What is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Selection {
    /// The program of the first process.
    pub experiment: Experiment,
    /// Which programs, where they are at random.
    pub programs: Programs,
    /// How ephemeral mappings are made.
    pub scheme: SchemeName,
    /// CPUs; all that there are, if it does not say.
    pub cpus: Option<usize>,
    /// Frames of memory; all, if it does not say.
    pub frames: Option<usize>,
    /// Whether pipes are pairs of sockets; what the experiment wants, if it does not say.
    pub pipes: Option<PipeKind>,
    /// Whether a thread that does not sleep has to let others run after a while: when, is a matter of time, and that is
    /// another on each machine.
    pub preempts: bool,
    /// What is planted in the kernel.
    pub defect: Planted<KernelDefect>,
    /// What is planted in its lowest floor.
    pub pmap_defect: Planted<PmapDefect>,
}

impl Default for Selection {
    fn default() -> Selection {
        Selection {
            experiment: Experiment::Carry,
            programs: Programs { first: 1, count: 1 },
            scheme: SchemeName::Direct,
            cpus: None,
            frames: None,
            pipes: None,
            preempts: true,
            defect: Planted::NONE,
            pmap_defect: Planted::NONE,
        }
    }
}

/// A scheme of ephemeral mappings by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SchemeName {
    /// The direct map.
    Direct,
    /// A cache of mappings.
    Cache,
    /// A mapping for each use.
    Original,
}

impl SchemeName {
    /// All of them.
    pub const ALL: [SchemeName; 3] = [SchemeName::Direct, SchemeName::Cache, SchemeName::Original];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            SchemeName::Direct => "direct",
            SchemeName::Cache => "cache",
            SchemeName::Original => "original",
        }
    }

    /// The scheme.
    pub const fn scheme(self) -> Scheme {
        match self {
            SchemeName::Direct => Scheme::Direct,
            // Few, so that they are used again.
            SchemeName::Cache => Scheme::Cache { entries: 64, rule: AccessedRule::Safe },
            SchemeName::Original => Scheme::Original,
        }
    }
}

impl Selection {
    /// Takes a word of a line; false if it is not one of those here.
    ///
    /// # Errors
    /// A value that makes no sense.
    pub fn take<'a>(&mut self, word: &'a str) -> Result<bool, BadWord<'a>> {
        let bad = |expected| BadWord { word, expected };
        let (name, value) = word.split_once('=').ok_or(bad("name=value"))?;
        match name {
            "cpus" => {
                let some = |cpus: &usize| (1..=CpuSet::MAX_CPUS).contains(cpus);
                self.cpus = Some(value.parse().ok().filter(some).ok_or(bad("1 to 64 CPUs"))?);
            }
            "frames" => self.frames = Some(value.parse().map_err(|_| bad("a number of frames"))?),
            "pipes" => {
                self.pipes = match value {
                    "fifo" => Some(PipeKind::Fifo),
                    "sockets" => Some(PipeKind::Socket),
                    _ => return Err(bad("pipes=fifo or sockets")),
                };
            }
            "preempt" => {
                self.preempts = match value {
                    "yes" => true,
                    "no" => false,
                    _ => return Err(bad("preempt=yes or no")),
                };
            }
            "scheme" => {
                let named = SchemeName::ALL.into_iter().find(|scheme| scheme.name() == value);
                self.scheme = named.ok_or(bad("scheme=direct, cache or original"))?;
            }
            "first" => self.programs.first = value.parse().map_err(|_| bad("the number of a program"))?,
            "programs" => {
                let some = |count: &u32| (1..=Programs::MAX).contains(count);
                self.programs.count = value.parse().ok().filter(some).ok_or(bad("1 to 1000 programs"))?;
            }
            "experiment" => {
                let named = Experiment::ALL.into_iter().find(|experiment| experiment.name() == value);
                self.experiment = named.ok_or(bad(Experiment::NAMES))?;
            }
            "defect" => self
                .plant(value)
                .ok_or(bad("a defect of the kernel or of pmap, in an image that has them"))?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Plants a defect by its name.
    #[cfg(feature = "plant")]
    fn plant(&mut self, name: &str) -> Option<()> {
        if let Some(&defect) = KernelDefect::ALL.iter().find(|defect| defect.name() == name) {
            self.defect = defect.into();
            return Some(());
        }
        let &defect = PmapDefect::ALL.iter().find(|defect| defect.name() == name)?;
        self.pmap_defect = defect.into();
        Some(())
    }

    /// There are none.
    #[cfg(not(feature = "plant"))]
    fn plant(&mut self, _: &str) -> Option<()> {
        None
    }

    /// A number for what runs, on so many CPUs and frames: a schedule of another one does not fit. Defects do not
    /// count, for a kernel with one may be conducted by a kernel without.
    pub fn fingerprint(&self, cpus: usize, frames: usize) -> u64 {
        let Programs { first, count } = self.programs;
        let numbers =
            [self.experiment as usize, self.scheme as usize, cpus, frames, first as usize, count as usize];
        let mut bytes = [0; 48];
        for (to, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            to.copy_from_slice(&(number as u64).to_le_bytes());
        }
        Event::sum(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    fn taken(words: &[&'static str]) -> Result<Selection, BadWord<'static>> {
        let mut selection = Selection::default();
        for &word in words {
            assert!(selection.take(word)?, "{word}");
        }
        Ok(selection)
    }

    #[test]
    fn words_are_taken_up_to_their_limits() {
        for (word, expected) in [
            ("cpus=0", Some("1 to 64 CPUs")),
            ("cpus=1", None),
            ("cpus=64", None),
            ("cpus=65", Some("1 to 64 CPUs")),
            ("cpus=", Some("1 to 64 CPUs")),
            ("programs=0", Some("1 to 1000 programs")),
            ("programs=1000", None),
            ("programs=1001", Some("1 to 1000 programs")),
            ("first=4294967295", None),
            ("first=4294967296", Some("the number of a program")),
            ("frames=-1", Some("a number of frames")),
            ("pipes=fifo", None),
            ("pipes=file", Some("pipes=fifo or sockets")),
            ("preempt=no", None),
            ("preempt=maybe", Some("preempt=yes or no")),
            ("scheme=cache", None),
            ("scheme=", Some("scheme=direct, cache or original")),
            ("experiment=echo", None),
            ("experiment=Echo", Some(Experiment::NAMES)),
            ("cpus", Some("name=value")),
        ] {
            assert_eq!(taken(&[word]).err().map(|bad| bad.expected), expected, "{word}");
        }
        assert_eq!(Selection::default().take("colour=red").ok(), Some(false));
        let names = Experiment::ALL.map(Experiment::name).join(", ");
        let (all_but_one, last) = names.rsplit_once(", ").expect("several");
        assert_eq!(Experiment::NAMES, alloc::format!("experiment={all_but_one} or {last}"));
    }

    /// Whatever changes which turns a run has, gives it another number.
    #[test]
    fn other_runs_have_other_fingerprints() {
        let mut numbers = BTreeSet::new();
        let selections = [
            &[][..],
            &["experiment=echo"],
            &["experiment=random"],
            &["scheme=cache"],
            &["scheme=original"],
            &["first=2"],
            &["programs=2"],
            &["first=2", "programs=2"],
        ];
        for words in selections {
            let selection = taken(words).expect("good words");
            for (cpus, frames) in [(1, 65536), (2, 65536), (1, 65537)] {
                assert!(numbers.insert(selection.fingerprint(cpus, frames)), "{words:?}, {cpus}, {frames}");
            }
        }
    }
}
