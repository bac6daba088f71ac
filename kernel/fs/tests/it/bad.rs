//! Volumes that are none, truncated, of another version, or damaged: named and refused, found and repaired, never a
//! panic.

use crate::common::*;
use pageferry_fs::*;

fn filled(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut side = Side::new(512 << 10, blocks_of(512), 64, None);
    for _ in 0..300 {
        let call = call(&mut random);
        side.run(&call);
    }
    let Side { mut store, volume, .. } = side;
    volume.unmount(&mut store).unwrap();
    store.into_device().bytes().to_vec()
}

fn refused(bytes: Vec<u8>) -> String {
    match check(&mut Cached::new(MemoryDevice::from_bytes(bytes))) {
        Err(FsError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_no_volume_is_refused_with_the_reason() {
    let sound = filled(1);
    assert!(refused(Vec::new()).contains("ends after 0 whole sectors of 512 bytes"));
    assert!(refused(vec![0; 4096]).contains("no superblock"));
    assert!(refused(sound[..sound.len() / 2].to_vec()).contains("it ends after"));
    let mut other = sound.clone();
    other[8] = 9;
    assert!(refused(other.clone()).contains("version 9, expected 2"));
    let mut store = Cached::new(MemoryDevice::from_bytes(other));
    assert!(matches!(repair(&mut store), Err(FsError::Refused(why)) if why.contains("version 9")));
    let mut changed = sound;
    changed[16] ^= 1;
    assert!(refused(changed).contains("sum"));
}

#[test]
fn a_superblock_that_is_lost_comes_back_from_a_copy() {
    let mut side = Side::new(4 << 20, blocks_of(512), 64, None);
    let root = side.volume.root();
    let file = side.volume.make(&mut side.store, root, b"name", Kind::File).unwrap();
    side.volume.write(&mut side.store, file, 0, b"bytes").unwrap();
    let Side { mut store, volume, .. } = side;
    volume.unmount(&mut store).unwrap();
    store.write(0, &[0; 512], When::Now).unwrap();
    assert!(matches!(check(&mut store), Err(FsError::Refused(_))));
    repair(&mut store).unwrap();
    let volume = Volume::mount(&mut store).unwrap();
    let mut side = Side { store, volume, open: [None; SLOTS], own_bytes: None };
    let ino = side.find("name").unwrap();
    assert_eq!(side.contents(ino).unwrap(), b"bytes");
}

#[test]
fn whatever_is_damaged_is_met_without_a_panic_and_made_whole() {
    let mut repaired = 0;
    for seed in 1..=400 {
        let mut random = Random::new(seed);
        let mut bytes = filled(seed % 5 + 1);
        // Mostly where structures are.
        for _ in 0..1 + random.below(20) {
            let end = if random.below(2) == 0 { 6 << 10 } else { bytes.len() as u64 };
            let at = 512 + random.below(end - 512) as usize;
            bytes[at] = random.below(256) as u8;
        }
        let mut store = Cached::new(MemoryDevice::from_bytes(bytes));
        // Used as it is: calls may find damage.
        let mut used = Cached::new(store.device().clone());
        if let Ok(volume) = Volume::mount(&mut used) {
            let mut side = Side { store: used, volume, open: [None; SLOTS], own_bytes: None };
            for _ in 0..200 {
                let call = call(&mut random);
                side.run(&call);
            }
        }
        let found = check(&mut store).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        repair(&mut store).unwrap_or_else(|e| panic!("seed {seed}: {e}: {:?}", found.problems));
        let after = check(&mut store).unwrap();
        assert!(after.is_clean(), "seed {seed}: {:?} behind {:?}", after.problems, found.problems);
        repaired += usize::from(found.is_damaged());
    }
    assert!(repaired > 100, "{repaired}");
}
