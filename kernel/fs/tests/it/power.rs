//! The power goes at any write: what the order of writes prevents is not there, what was synced is, and the repair
//! makes the volume whole.

use crate::common::*;
use pageferry_fs::*;

/// Something that has to be so between two writes.
struct Fact {
    ino: Ino,
    /// One of these names is that of a file with these bytes.
    paths: Vec<String>,
    bytes: Vec<u8>,
    from: usize,
    until: Option<usize>,
}

/// It has a name where a directory of its path was before that moved: soft updates may leave that to wait.
fn is_elsewhere(side: &mut Side, fact: &Fact) -> bool {
    side.files().into_iter().any(|(path, ino)| {
        ino == fact.ino
            && !path.starts_with("lost+found")
            && side.contents(ino).is_ok_and(|bytes| bytes == fact.bytes)
    })
}

/// Ends the facts that a call is going to make untrue, or moves them.
fn before(call: &Call, side: &mut Side, facts: &mut [Fact]) {
    let now = side.store.device().written();
    let mut end = |which: &dyn Fn(&Fact) -> bool| {
        facts.iter_mut().filter(|f| f.until.is_none() && which(f)).for_each(|f| f.until = Some(now));
    };
    match call {
        Call::Write(i, ..) | Call::Truncate(i, _) => {
            let ino = side.open[*i];
            end(&|fact| Some(fact.ino) == ino);
        }
        Call::Unlink(path) => {
            let ino = side.find(path).ok();
            end(&|fact| Some(fact.ino) == ino);
        }
        Call::Rename(from, to) => {
            let (source, target) = (side.find(from).ok(), side.find(to).ok());
            let kind =
                source.and_then(|ino| side.volume.stat(&mut side.store, ino).ok()).map(|stat| stat.kind);
            end(&|fact| Some(fact.ino) == target || kind == Some(Kind::Directory));
            for fact in facts.iter_mut().filter(|f| f.until.is_none() && Some(f.ino) == source) {
                fact.paths.push(to.clone());
            }
        }
        _ => {}
    }
}

/// How a volume is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    InOrder,
    Soft,
    /// As soft updates, to a disk that refuses some.
    SoftWithFailures,
}

/// A program of so many steps, cut at `cuts` random writes; at every one without a number.
pub fn cut_anywhere(
    seed: u64,
    steps: usize,
    cuts: Option<usize>,
    writes: Writes,
    defect: Option<FsDefect>,
) -> Result<(), String> {
    let mut random = Random::new(seed ^ 0x5a5a);
    let format = match random.below(6) {
        n @ 0..3 => blocks_of(512 << n),
        3 => fragments_of(1024, 512),
        4 => fragments_of(4096, 512),
        _ => fragments_of(8192, 2048),
    };
    let (is_soft, fails) = (writes != Writes::InOrder, writes == Writes::SoftWithFailures);
    // Where the disk fails, no call writes that does not say so: what it answers then is what it has done.
    let max_dirty = if fails { 4096 } else { 4 + random.below(40) as usize };
    let mut side = Side::new(2 << 20, format, max_dirty, defect);
    side.volume.sync(&mut side.store).map_err(|e| e.to_string())?;
    let base = side.store.device().clone();
    side.store.device_mut().keep_journal();
    if is_soft {
        side.use_soft_updates(defect);
    }
    let mut facts: Vec<Fact> = Vec::new();
    for _ in 0..steps {
        let call = call(&mut random);
        before(&call, &mut side, &mut facts);
        if fails && random.below(2) == 0 {
            side.store.device_mut().fail_writes_after(Some(random.below(6) as u32));
        }
        let answer = side.run(&call);
        if is_soft && random.below(3) == 0 {
            // A buffer is wanted for something else, or has waited long enough.
            let at = random.below(side.store.len_bytes());
            side.store.write_chunk_at(at).or_else(|e| if fails { Ok(()) } else { Err(e.to_string()) })?;
        }
        side.store.device_mut().fail_writes_after(None);
        if let Answer::No("damaged") = answer {
            return Err(format!("seed {seed}: {call:?} finds damage"));
        }
        if let (Call::Fsync(i), Answer::Done) = (&call, answer) {
            let ino = side.open[*i].expect("it was synced");
            let paths = side.paths_of(ino);
            if !paths.is_empty() {
                let bytes = side.contents(ino).map_err(|e| e.to_string())?;
                facts.push(Fact { ino, paths, bytes, from: side.store.device().written(), until: None });
            }
        }
    }
    if is_soft {
        let Side { mut store, volume, .. } = side;
        volume.unmount(&mut store).map_err(|e| format!("seed {seed}: {e}"))?;
        let found = check(&mut store).map_err(|e| e.to_string())?;
        if !found.is_clean() || !store.soft_updates().is_some_and(|soft| soft.is_empty()) {
            return Err(format!("seed {seed}, unmounted: {:?}", found.problems));
        }
        // All that waits comes to the disk there.
        cut_at(&store, &base, (seed, cuts, writes), &facts, &mut random)
    } else {
        cut_at(&side.store, &base, (seed, cuts, writes), &facts, &mut random)
    }
}

/// Looks at the disk as it was at random moments, or at all.
fn cut_at(
    store: &Cached<MemoryDevice>,
    base: &MemoryDevice,
    (seed, cuts, writes): (u64, Option<usize>, Writes),
    facts: &[Fact],
    random: &mut Random,
) -> Result<(), String> {
    let written = store.device().written();
    let device = store.device();
    let moments: Vec<usize> = match cuts {
        Some(cuts) => (0..cuts).map(|_| random.below(written as u64 + 1) as usize).collect(),
        None => (0..=written).collect(),
    };
    for at in moments {
        let mut store = Cached::new(device.cut(base, at));
        let found = check(&mut store).map_err(|e| e.to_string())?;
        if let Some(problem) = found.problems.iter().find(|p| p.weight == Weight::Damage) {
            return Err(format!("seed {seed}, cut behind write {at} of {written}: {}", problem.text));
        }
        repair(&mut store).map_err(|e| format!("seed {seed}, cut at {at}: {e}"))?;
        let again = check(&mut store).map_err(|e| e.to_string())?;
        if !again.is_clean() {
            return Err(format!("seed {seed}, cut at {at}, repaired: {:?}", again.problems));
        }
        let volume = Volume::mount(&mut store).map_err(|e| e.to_string())?;
        let mut after = Side { store, volume, open: [None; SLOTS], own_bytes: None };
        if writes != Writes::InOrder
            && let Some(path) = after.strange_bytes()
        {
            return Err(format!("seed {seed}, cut at {at}: {path} has bytes that it was never given"));
        }
        if let Some(link) = after.odd_link() {
            return Err(format!("seed {seed}, cut at {at}: the symbolic link {link} has another path"));
        }
        for fact in facts.iter().filter(|f| f.from <= at && f.until.is_none_or(|until| at <= until)) {
            let holds = fact.paths.iter().any(|path| {
                after.find(path).and_then(|ino| after.contents(ino)).is_ok_and(|bytes| bytes == fact.bytes)
            });
            if !(holds || writes != Writes::InOrder && is_elsewhere(&mut after, fact)) {
                return Err(format!("seed {seed}, cut at {at}: {:?} is not what was synced", fact.paths));
            }
        }
        after.end().map_err(|e| format!("seed {seed}, cut at {at}, mounted again: {e}"))?;
    }
    Ok(())
}

#[test]
fn a_power_cut_leaves_nothing_that_the_order_of_writes_prevents() {
    let seeds = std::env::var("PAGEFERRY_FS_SEEDS").map_or(40, |seeds| seeds.parse().expect("a number"));
    for seed in 1..=seeds {
        cut_anywhere(seed, 400, Some(25), Writes::InOrder, None).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn a_power_cut_leaves_of_soft_updates_what_they_promise() {
    let seeds = std::env::var("PAGEFERRY_FS_SEEDS").map_or(40, |seeds| seeds.parse().expect("a number"));
    for seed in 1..=seeds {
        cut_anywhere(seed, 400, Some(25), Writes::Soft, None).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// What the disk has refused waits on, with all that it waits for, and comes there later.
#[test]
fn a_disk_that_fails_at_times_gets_all_in_order_all_the_same() {
    for seed in 1..=40 {
        cut_anywhere(seed, 400, Some(25), Writes::SoftWithFailures, None).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn no_write_is_an_exception() {
    for seed in 1..=4 {
        cut_anywhere(seed, 150, None, Writes::InOrder, None).unwrap_or_else(|e| panic!("{e}"));
        cut_anywhere(seed, 300, None, Writes::Soft, None).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// A file moves out of a directory, which then goes; all buffers but one are written, and the power goes.
pub fn moved_out(defect: Option<FsDefect>) -> Result<(), String> {
    let len_bytes = 128 << 10;
    for left_out in 0..len_bytes as u64 / 4096 {
        let mut side = Side::new(len_bytes, blocks_of(4096), 64, defect);
        side.use_soft_updates(defect);
        let root = side.volume.root();
        let mut make = |dir, name: &[u8], kind| side.volume.make(&mut side.store, dir, name, kind).unwrap();
        let (from, to) = (make(root, b"from", Kind::Directory), make(root, b"to", Kind::Directory));
        let file = make(from, b"file", Kind::File);
        side.volume.write(&mut side.store, file, 0, b"bytes").unwrap();
        side.volume.sync(&mut side.store).unwrap();
        side.volume.rename(&mut side.store, (from, b"file"), (to, b"file")).unwrap();
        side.volume.rmdir(&mut side.store, root, b"from").unwrap();
        for _ in 0..4 {
            for chunk in (0..len_bytes as u64 / 4096).filter(|chunk| *chunk != left_out) {
                side.store.write_chunk_at(chunk * 4096).unwrap();
            }
        }
        let mut store = Cached::new(side.store.into_device());
        let volume = Volume::mount(&mut store).map_err(|e| e.to_string())?;
        let mut after = Side { store, volume, open: [None; SLOTS], own_bytes: None };
        let files = after.files();
        if !files.iter().any(|(path, _)| path == "from/file" || path == "to/file") {
            return Err(format!("without what is in chunk {left_out}: {files:?}"));
        }
    }
    Ok(())
}

#[test]
fn what_moves_out_of_a_directory_that_goes_keeps_a_name() {
    moved_out(None).unwrap();
}
