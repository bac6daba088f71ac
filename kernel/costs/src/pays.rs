//! From where on a way pays, by what was measured at some sizes.

/// From which size on, or which value of whatever is varied, one way is cheaper than another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", tag = "pays", content = "from")
)]
pub enum Pays<X> {
    /// At all sizes.
    Always,
    /// From this size on, at all larger ones.
    From(X),
    /// Not at the largest size.
    Never,
}

/// From which size on it pays, by the sizes in ascending order and whether it pays there; `None` without sizes. Nothing
/// is interpolated.
pub fn pays<X, I>(sizes: I) -> Option<Pays<X>>
where
    I: IntoIterator<Item = (X, bool)>,
    I::IntoIter: DoubleEndedIterator,
{
    let mut answer = None;
    for (x, wins) in sizes.into_iter().rev() {
        match (wins, answer) {
            (true, _) => answer = Some(Pays::From(x)),
            (false, None) => return Some(Pays::Never),
            (false, from) => return from,
        }
    }
    answer.map(|_| Pays::Always)
}
