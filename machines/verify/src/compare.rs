//! Two logs of events, line by line.

use crate::witness;
use pageferry_hal::tap::{Event, EventKind};
use std::fs;
use std::path::Path;

/// Lines shown before the first that differs.
const BEFORE: usize = 3;

fn read(path: &Path) -> Result<Vec<Event>, String> {
    let bytes = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let event = |(line, bytes): (usize, &[u8])| {
        let words = std::array::from_fn(|i| u64::from_le_bytes(std::array::from_fn(|j| bytes[8 * i + j])));
        Event::decode(words).ok_or(format!("{}: event {line} is none", path.display()))
    };
    const EVENT_BYTES: usize = 8 * (Event::WORDS + 1);
    if bytes.len() % EVENT_BYTES != 0 {
        return Err(format!("{}: {} bytes, expected whole events", path.display(), bytes.len()));
    }
    if bytes.is_empty() {
        return Err(format!("{}: no events, expected some", path.display()));
    }
    bytes.chunks_exact(EVENT_BYTES).enumerate().map(event).collect()
}

/// Compares `model.bin` and `metal.bin` of the folder, and the witness's notes, and says what it finds; true if all
/// are equal.
pub(crate) fn compare(folder: &Path) -> Result<bool, String> {
    let model = read(&folder.join("model.bin"))?;
    let metal = read(&folder.join("metal.bin"))?;
    println!("{:<16} {:>9} {:>9}", "events", "model", "metal");
    for &kind in EventKind::ALL {
        let count = |log: &[Event]| log.iter().filter(|event| event.kind == kind).count();
        if count(&model) + count(&metal) > 0 {
            println!("{:<16} {:>9} {:>9}", format!("{kind:?}"), count(&model), count(&metal));
        }
    }
    println!("{:<16} {:>9} {:>9}", "all", model.len(), metal.len());
    let longer = model.len().max(metal.len());
    let differing: Vec<usize> = (0..longer).filter(|&line| model.get(line) != metal.get(line)).collect();
    println!("{} lines differ", differing.len());
    if let Some(&first) = differing.first() {
        println!("the first is line {first}:");
        for (line, event) in model.iter().enumerate().take(first).skip(first.saturating_sub(BEFORE)) {
            println!("  both {line}: {event}");
        }
        let shown = |log: &[Event]| log.get(first).map_or("nothing".into(), ToString::to_string);
        println!("  model {first}: {}", shown(&model));
        println!("  metal {first}: {}", shown(&metal));
    }
    let witnessed = witness::compare(folder, &model, &metal)?;
    Ok(differing.is_empty() && witnessed)
}
