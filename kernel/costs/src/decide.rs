//! The cheapest of several ways.

/// The way that costs least, and its cost; of those that cost the same the first, so the way that is surest to work is
/// named first: the copy.
pub fn decide<W, const N: usize>(ways: [(W, u64); N]) -> (W, u64) {
    const { assert!(N > 0, "there is a way") };
    let mut ways = ways.into_iter();
    let first = ways.next().expect("there is a way");
    ways.fold(first, |best, way| if way.1 < best.1 { way } else { best })
}
