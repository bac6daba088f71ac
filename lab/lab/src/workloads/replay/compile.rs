//! The compile of a kernel (PPC paper): `make` runs the compiler's driver for each source, and a shell that notes its
//! flags; the driver runs the preprocessor, then compiler and assembler at the same time with a pipe between; the
//! linker makes one object of all.
//!
//! All of them are recorded runs of real programs ([`super::recorded`]): of a build of `lib/e2p` of e2fsprogs, some
//! three thousand lines a source with its headers. Each is a process that its parent forks and that execs its image,
//! and makes the calls about files that it made when it was recorded. Three of the sources were recorded; the others
//! are compiled as those are, in turn.
//!
//! What is read and written goes through the file system. With a warm page cache all of it is in memory; with a cold
//! one it is on the disk, where it was written and pushed out before, and comes from there. The measured part is the
//! whole compile; the first source is not counted for the kernel's high-water mark, which is of a machine that is warm.

use super::compile_plots;
use super::compile_worth;
use super::files::{FileTree, Files, Route, read_by};
use super::image::Image;
use super::process::{Children, Ends, Next, Replay, Request, Wire};
use super::recorded::{RecordedProgram, all_recorded};
use super::stage::{Stage, made_bytes, make_file, wait_for};
use crate::error::LabError;
use crate::files::Experiment;
use crate::judge::Reproduction;
use crate::kit::{CallError, OutcomeCell, Stopwatch, first_process, named, other_process};
use crate::plot::Plot;
use crate::record::Metric;
use crate::run::{Testbed, Workload};
use pageferry_hal::PAGE_SIZE;
use pageferry_kernel::{Fd, Program, User};
use pageferry_model::{MachineConfig, Model};
use std::rc::Rc;
use std::sync::Arc;

/// The sources of which preprocessor, compiler and assembler were recorded.
const SOURCES: [[&str; 3]; 3] = [
    ["getversion-cpp", "getversion-cc1", "getversion-as"],
    ["pe-cpp", "pe-cc1", "pe-as"],
    ["percent-cpp", "percent-cc1", "percent-as"],
];

/// What the preprocessor hands to the compiler.
const PREPROCESSED: &str = "source.i";
/// What is linked.
const LINKED: &str = "e2p.o";

/// The recorded programs of a build.
struct Programs {
    make: Arc<RecordedProgram>,
    driver: Arc<RecordedProgram>,
    shell: Arc<RecordedProgram>,
    linker: Arc<RecordedProgram>,
    sources: Vec<[Arc<RecordedProgram>; 3]>,
}

impl Programs {
    fn read() -> Result<Programs, LabError> {
        let beside = ["build-make", "build-gcc", "build-sh", "build-ld"];
        let names: Vec<&str> = beside.into_iter().chain(SOURCES.into_iter().flatten()).collect();
        let mut read = all_recorded(&names)?.into_iter();
        let mut next = || read.next().expect("as many as names");
        Ok(Programs {
            make: next(),
            driver: next(),
            shell: next(),
            linker: next(),
            sources: SOURCES.map(|_| [next(), next(), next()]).into(),
        })
    }

    fn all(&self) -> impl Iterator<Item = &RecordedProgram> {
        let beside = [&self.make, &self.driver, &self.shell, &self.linker];
        beside.into_iter().chain(self.sources.iter().flatten()).map(|r| &**r)
    }
}

crate::choice! {
    /// Where files are when the compile begins.
    pub(crate) enum PageCache { Warm = "warm", Cold = "cold" }
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        sources: usize = 1..=12,
        cache: PageCache,
    }
}

/// What all processes of a build know.
struct Build {
    stage: Stage,
    programs: Programs,
    tree: Rc<FileTree>,
    sources: usize,
}

pub(crate) struct Compile;

impl Workload for Compile {
    const NAME: &'static str = "kernel-compile";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        (p.sources as u64).saturating_mul(3_000_000)
    }

    fn metrics() -> Vec<Metric> {
        super::stage::metrics()
    }

    /// The program of who calls `make`.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let programs = Programs::read()?;
        let images = Image::all(programs.all()).into_iter().map(|(name, image)| (name, Rc::new(image)));
        let tree = Rc::new(FileTree { images: images.collect(), ..FileTree::default() });
        let stage = Stage::new(testbed, cell.clone());
        if p.cache == PageCache::Cold && testbed.kernel.file.paging.is_none() {
            return Err(testbed
                .incompatible("a cold page cache takes a kernel that pages: expected [paging] in its file"));
        }
        let build = Rc::new(Build { stage, programs, tree, sources: p.sources });
        Ok(first_process(cell, 0, move |user| build.run(user, p.cache)))
    }

    fn plots(of: &Reproduction, experiment: &Experiment) -> Vec<Plot> {
        // About how the kernel handles misses: nothing where hardware does.
        let by_hardware = of.machines_of(&experiment.name).any(|m| m.config.mmu.refill.is_none());
        if by_hardware || !experiment.file.curves.is_empty() {
            return Vec::new();
        }
        let plots = compile_plots::all(of, &experiment.name).into_iter();
        plots.chain(compile_worth::worth(of, &experiment.name)).collect()
    }
}

impl Build {
    fn run(self: &Rc<Self>, user: &User<Model>, cache: PageCache) -> Result<(), CallError> {
        // The pages that the programs of a source have at once, beside the files.
        let [cpp, compile, assemble] =
            [0, 1, 2].map(|i| self.programs.sources.iter().map(|set| set[i].pages.len()).max().unwrap_or(0));
        let files = read_by(self.programs.all());
        let of_files: usize = files.values().map(|len| len.div_ceil(PAGE_SIZE)).sum();
        let wanted = 2 * (cpp + compile + assemble) + of_files;
        if !self.stage.has_room(user, wanted * PAGE_SIZE) {
            return Ok(());
        }
        self.tree.images.values().try_for_each(|image| image.install(user))?;
        for (name, len) in &files {
            make_file(user, name, *len)?;
            self.tree.bytes.borrow_mut().insert(name.clone(), made_bytes(*len));
        }
        if cache == PageCache::Cold {
            let names = self.tree.images.keys().chain(files.keys());
            self.stage.push_out(user, names)?;
        }
        let watch = Stopwatch::start(&self.stage.model);
        self.start(user, &self.programs.make, Routes::default(), |_| Ok(Ends::default()), Some(self.make()))?;
        wait_for(user, 1)?;
        self.stage.finish(user, self.tree.references.get(), watch);
        let written: Vec<String> = self.tree.bytes.borrow().keys().cloned().collect();
        written
            .iter()
            .chain(self.tree.images.keys())
            .try_for_each(|n| user.unlink(n).map_err(named("unlink")))
    }

    /// Forks a process that execs a program.
    fn start(
        self: &Rc<Self>,
        user: &User<Model>,
        recorded: &Arc<RecordedProgram>,
        routes: Routes,
        open: impl FnOnce(&User<Model>) -> Result<Ends, CallError> + 'static,
        children: Option<Children>,
    ) -> Result<(), CallError> {
        let (build, program) = (self.clone(), recorded.clone());
        let cell = self.stage.cell.clone();
        let child = other_process(self.stage.cell.clone(), move |user| {
            let ends = open(user)?;
            let files = Files::new(&build.tree, routes.reads, routes.writes);
            Replay::new(&build.stage.model, user, &cell, program, ends).with_files(files, children).run()
        });
        user.fork(&recorded.program, child).map_err(named("fork")).map(drop)
    }

    /// What `make` starts: for each source the driver and a shell, the linker at last.
    fn make(self: &Rc<Self>) -> Children {
        let build = self.clone();
        let no_pipe = |_: &User<Model>| Ok(Ends::default());
        Box::new(move |user, asked| {
            let Request::Fork(child) = asked else { return Ok(Next::Goes) };
            let source = child / 2;
            if source == 1 && child % 2 == 0 {
                build.stage.model.take_max_kernel_entries();
            }
            if source >= build.sources {
                let objects = (0..build.sources).map(object).collect();
                let routes = Routes { reads: Route::Named(objects), writes: Route::to(LINKED) };
                build.start(user, &build.programs.linker, routes, no_pipe, None)?;
                return Ok(Next::Ends);
            }
            if child % 2 == 0 {
                let routes = Routes { writes: Route::to(PREPROCESSED), ..Routes::default() };
                build.start(user, &build.programs.driver, routes, no_pipe, Some(build.driver(source)))?;
            } else {
                let routes = Routes { writes: Route::to(&format!("flags-{source}")), ..Routes::default() };
                build.start(user, &build.programs.shell, routes, no_pipe, None)?;
            }
            Ok(Next::Goes)
        })
    }

    /// What the driver starts: the preprocessor; then compiler and assembler, when it has made a pipe.
    fn driver(self: &Rc<Self>, source: usize) -> Children {
        let build = self.clone();
        let mut pipe: Option<(Fd, Fd)> = None;
        let wire = Wire::default();
        Box::new(move |user, asked| {
            let set = &build.programs.sources[source % SOURCES.len()];
            match (asked, pipe) {
                (Request::Pipe, _) => pipe = Some(user.pipe().map_err(named("pipe"))?),
                (Request::Fork(0), _) => {
                    let routes = Routes { writes: Route::to(PREPROCESSED), ..Routes::default() };
                    build.start(user, &set[0], routes, |_| Ok(Ends::default()), None)?;
                }
                (Request::Fork(1), Some((from, to))) => {
                    let routes = Routes { reads: Route::to(PREPROCESSED), writes: Route::Pipe };
                    let wire = wire.clone();
                    let ends = move |user: &User<Model>| {
                        user.close(from).map_err(named("close"))?;
                        Ok(Ends { output: Some(to), output_wire: Some(wire), ..Ends::default() })
                    };
                    build.start(user, &set[1], routes, ends, None)?;
                }
                (Request::Fork(_), Some((from, to))) => {
                    let routes = Routes { reads: Route::Pipe, writes: Route::to(&object(source)) };
                    let wire = wire.clone();
                    let ends = move |user: &User<Model>| {
                        user.close(to).map_err(named("close"))?;
                        Ok(Ends { input: Some(from), input_wire: Some(wire), ..Ends::default() })
                    };
                    build.start(user, &set[2], routes, ends, None)?;
                    for end in [from, to] {
                        user.close(end).map_err(named("close"))?;
                    }
                }
                (Request::Fork(_), None) => return Err(("make a pipe", pageferry_kernel::Errno::Invalid)),
            }
            Ok(Next::Goes)
        })
    }
}

/// What a program's files are.
#[derive(Default)]
struct Routes {
    reads: Route,
    writes: Route,
}

fn object(source: usize) -> String {
    format!("source-{source}.o")
}
