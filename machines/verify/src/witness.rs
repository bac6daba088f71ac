//! What a plugin of QEMU has seen of a run on metal, beside what the kernel says that it did.

use pageferry_hal::Va;
use pageferry_hal::isa::x86::AMD64_LAYOUT;
use pageferry_hal::tap::{Event, EventKind};
use std::fs;
use std::path::Path;

/// What a witness notes: a letter, and what it is called here.
const KINDS: [(u8, &str); 4] =
    [(b'i', "invlpg"), (b'c', "loads of CR3"), (b'f', "page faults"), (b'a', "APIC commands")];

/// What the instructions of an event are, in their order.
fn instructions(event: &Event) -> Vec<(u8, u8)> {
    const PAGE: u64 = 0;
    const CONTEXT: u64 = 1;
    const TIMER: u64 = 2;
    let cpu = event.cpu.0;
    let times = |letter, n: u32| vec![(letter, cpu); n as usize];
    match (event.kind, event.words) {
        (EventKind::Flush, [PAGE, ..]) => times(b'i', 1),
        (EventKind::Activate, _) | (EventKind::Flush, [CONTEXT, ..]) => times(b'c', 1),
        // What is not in user space the kernel refuses itself, before the processor is asked.
        (EventKind::Fault, [va, ..]) if AMD64_LAYOUT.is_user(Va(va), 1) => times(b'f', 1),
        (EventKind::Send, [_, cpus, ..]) => times(b'a', (cpus & !(1 << cpu)).count_ones()),
        // A conducted CPU sends its timer's interrupt itself.
        (EventKind::Handle, [TIMER, ..]) => times(b'a', 1),
        _ => Vec::new(),
    }
}

/// Compares the events of the model with `witness.bin` of the folder; true if that is not there, or agrees.
pub(crate) fn compare(folder: &Path, model: &[Event], metal: &[Event]) -> Result<bool, String> {
    let path = folder.join("witness.bin");
    let Ok(bytes) = fs::read(&path) else {
        println!("no witness");
        return Ok(true);
    };
    if bytes.len() % 2 != 0 {
        return Err(format!("{}: {} bytes, expected two for each instruction", path.display(), bytes.len()));
    }
    let seen: Vec<(u8, u8)> = bytes.chunks_exact(2).map(|two| (two[0], two[1])).collect();
    let done = |log: &[Event]| log.iter().flat_map(instructions).collect::<Vec<_>>();
    let (model, metal) = (done(model), done(metal));
    println!("{:<16} {:>9} {:>9} {:>9}", "instructions", "model", "metal", "witness");
    for (letter, name) in KINDS {
        let count = |log: &[(u8, u8)]| log.iter().filter(|(other, _)| *other == letter).count();
        println!("{name:<16} {:>9} {:>9} {:>9}", count(&model), count(&metal), count(&seen));
    }
    let longer = model.len().max(seen.len());
    let differing = (0..longer).filter(|&at| model.get(at) != seen.get(at)).count();
    println!("{differing} of {longer} differ from the witness, in order");
    if let Some(first) = (0..longer).find(|&at| model.get(at) != seen.get(at)) {
        println!(
            "the first is instruction {first}: model {:?}, witness {:?}",
            model.get(first),
            seen.get(first)
        );
    }
    Ok(differing == 0)
}
