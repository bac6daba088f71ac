//! Every planted defect is found: beside the host, by the checker, or behind a power cut.

use crate::host::beside_the_host;
use crate::power::{Writes, cut_anywhere, moved_out};
use pageferry_fs::FsDefect;

#[test]
fn every_planted_defect_is_caught() {
    assert!(FsDefect::ALL.len() >= 10);
    for &defect in FsDefect::ALL {
        let found = if defect.needs_soft_updates() {
            match defect {
                // Rare at random.
                FsDefect::FullDirectoryGone => moved_out(Some(defect)).err(),
                _ => (1..=60)
                    .find_map(|seed| cut_anywhere(seed, 400, Some(40), Writes::Soft, Some(defect)).err()),
            }
        } else {
            (1..=60).find_map(|seed| {
                let found = beside_the_host(seed, 1500, Some(defect)).err();
                found.or_else(|| cut_anywhere(seed, 400, Some(40), Writes::InOrder, Some(defect)).err())
            })
        };
        let found = found.unwrap_or_else(|| panic!("{defect:?} is not found"));
        println!("{defect:?}: {found:.200}");
    }
}
