//! Shapes of curves: what it means that values rise, fall, stay level or have a peak, and how far they fall.
//!
//! Two values are different where the greater is above the smaller by more than a tolerance, a share of the smaller;
//! nearer ones are level with each other. A step the other way that is no greater breaks no shape, and a rise that is
//! no greater is none. At tolerance 0 every digit counts. Values are not negative and in the order of the axis; nothing
//! is said of what lies between them.

use crate::files::Shape;

/// Whether a curve has a shape, and where that shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShapeCheck {
    /// Whether it has.
    pub agrees: bool,
    /// Positions in order: if the curve has the shape, its ends, its peak or its extremes; if not, where it breaks.
    pub at: Vec<usize>,
}

impl Shape {
    /// Looks at `values`, of which there is at least one.
    pub fn seen(self, values: &[f64], tolerance: f64) -> ShapeCheck {
        match self {
            Shape::Rises => goes(values, tolerance, Way::Up),
            Shape::Falls => goes(values, tolerance, Way::Down),
            Shape::Flat => {
                let (up, down) = (steepest(values, Way::Up), steepest(values, Way::Down));
                let of = |(i, j): (usize, usize), way| step(values[i], values[j], way);
                let (i, j) = if of(up, Way::Up) > of(down, Way::Down) { up } else { down };
                let max = of((i, j), Way::Up).max(of((i, j), Way::Down));
                ShapeCheck { agrees: max <= 1.0 + tolerance, at: vec![i, j] }
            }
            Shape::Peaks => {
                let top =
                    (0..values.len()).rev().max_by(|&i, &j| values[i].total_cmp(&values[j])).unwrap_or(0);
                let (up, mut down) =
                    (goes(&values[..=top], tolerance, Way::Up), goes(&values[top..], tolerance, Way::Down));
                down.at.iter_mut().for_each(|at| *at += top);
                let mut at = vec![0, top, values.len() - 1];
                at.dedup();
                // A wrong step on either side shows more than the ends do.
                let inside =
                    |part: &&ShapeCheck| !part.agrees && part.at.iter().any(|place| !at.contains(place));
                let wrong = [&up, &down].into_iter().find(inside).map(|part| part.at.clone());
                ShapeCheck { agrees: up.agrees && down.agrees, at: wrong.unwrap_or(at) }
            }
        }
    }
}

/// The share of a value that is lost on the way to a later one, at most.
pub fn greatest_fall(values: &[f64]) -> f64 {
    let (i, j) = steepest(values, Way::Down);
    1.0 - 1.0 / step(values[i], values[j], Way::Down)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

impl Way {
    fn back(self) -> Way {
        if self == Way::Up { Way::Down } else { Way::Up }
    }
}

/// How many times one value is the other, going this way; 1 from a value to its like.
fn step(from: f64, to: f64, way: Way) -> f64 {
    match way {
        _ if from == to => 1.0,
        Way::Up => to / from,
        Way::Down => from / to,
    }
}

/// The places of the greatest step to a later value; the same place twice where all steps go the other way.
fn steepest(values: &[f64], way: Way) -> (usize, usize) {
    let (mut from, mut best) = (0, (0, 0));
    for at in 0..values.len() {
        if step(values[from], values[at], way) < 1.0 {
            from = at;
        }
        if step(values[from], values[at], way) > step(values[best.0], values[best.1], way) {
            best = (from, at);
        }
    }
    best
}

/// Whether `values` go one way, and nowhere back.
fn goes(values: &[f64], tolerance: f64, way: Way) -> ShapeCheck {
    let last = values.len() - 1;
    let (i, j) = steepest(values, way.back());
    if step(values[i], values[j], way.back()) > 1.0 + tolerance {
        return ShapeCheck { agrees: false, at: vec![i, j] };
    }
    ShapeCheck { agrees: step(values[0], values[last], way) > 1.0 + tolerance, at: vec![0, last] }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: f64 = 0.1;

    fn seen(shape: Shape, values: &[f64]) -> (bool, Vec<usize>) {
        let seen = shape.seen(values, NEAR);
        (seen.agrees, seen.at)
    }

    #[test]
    fn what_rises_ends_higher_and_takes_no_great_step_back() {
        assert_eq!(seen(Shape::Rises, &[10.0, 20.0, 19.0, 40.0]), (true, vec![0, 3]));
        assert_eq!(seen(Shape::Rises, &[10.0, 20.0, 18.0, 40.0]), (false, vec![1, 2]));
        // Several small steps back are a great one.
        assert_eq!(seen(Shape::Rises, &[10.0, 20.0, 18.5, 17.0, 40.0]), (false, vec![1, 3]));
        assert_eq!(seen(Shape::Rises, &[10.0, 10.5, 11.0]), (false, vec![0, 2]));
        assert_eq!(Shape::Rises.seen(&[10.0, 10.5, 11.0], 0.0), ShapeCheck { agrees: true, at: vec![0, 2] });
        assert!(!Shape::Rises.seen(&[10.0, 11.0, 10.99, 12.0], 0.0).agrees);
        assert!(!Shape::Rises.seen(&[7.0, 7.0], 0.0).agrees);
    }

    #[test]
    fn what_falls_is_what_rises_backwards() {
        assert_eq!(seen(Shape::Falls, &[40.0, 19.0, 20.0, 10.0]), (true, vec![0, 3]));
        assert_eq!(seen(Shape::Falls, &[40.0, 98.0, 26.0]), (false, vec![0, 1]));
        assert_eq!(Shape::Falls.seen(&[474.8, 476.2], 0.0), ShapeCheck { agrees: false, at: vec![0, 1] });
        assert!(Shape::Falls.seen(&[476.2, 474.8], 0.0).agrees);
    }

    #[test]
    fn what_is_flat_has_near_extremes() {
        assert_eq!(seen(Shape::Flat, &[211.8, 215.8, 219.0]), (true, vec![0, 2]));
        assert_eq!(seen(Shape::Flat, &[100.0, 111.0, 99.0]), (false, vec![1, 2]));
        assert_eq!(seen(Shape::Flat, &[5.0, 5.0]), (true, vec![0, 0]));
    }

    #[test]
    fn a_peak_lies_inside_and_stands_out_on_both_sides() {
        assert_eq!(seen(Shape::Peaks, &[18.0, 60.0, 100.0, 80.0, 32.0, 33.0]), (true, vec![0, 2, 5]));
        assert_eq!(seen(Shape::Peaks, &[18.0, 60.0, 100.0]), (false, vec![0, 2]));
        assert_eq!(seen(Shape::Peaks, &[100.0, 60.0, 18.0]), (false, vec![0, 2]));
        assert_eq!(seen(Shape::Peaks, &[18.0, 100.0, 95.0]), (false, vec![0, 1, 2]));
        assert_eq!(seen(Shape::Peaks, &[18.0, 100.0, 50.0, 90.0, 20.0]), (false, vec![2, 3]));
    }

    #[test]
    fn the_greatest_fall_is_from_any_value_to_a_later_one() {
        let near = |values: &[f64], share: f64| (greatest_fall(values) - share).abs() < 1e-9;
        assert!(near(&[190.0, 476.0], 0.0));
        assert!(near(&[100.0, 200.0, 150.0, 160.0, 50.0], 0.75));
        assert!(near(&[50.0, 40.0, 200.0, 190.0], 0.2));
        assert!(near(&[3.0, 0.0], 1.0));
    }
}
