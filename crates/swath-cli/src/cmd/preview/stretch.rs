//! Maps sample values to brightness.

use swath::{SampleType, tiff::Image};

use crate::job::Stretch;

/// Most values to take percentiles from: more would not change them visibly.
const MAX_VALUES: usize = 4 << 20;

/// Returns the values that become black and white.
pub fn limits(values: &[f32], stretch: Stretch, image: &Image) -> (f32, f32) {
    let (low, high) = match stretch {
        Stretch::None => type_range(image),
        Stretch::MinMax => percentiles(values, 0.0, 100.0),
        Stretch::Percentiles(low, high) => match percentiles(values, low, high) {
            // Most of the image has one value, as in a mask or a sparse map: show the full range instead.
            (low, high) if low == high => percentiles(values, 0.0, 100.0),
            found => found,
        },
    };
    // A single value becomes a medium brightness.
    if low == high { ((low - 0.5) as f32, (high + 0.5) as f32) } else { (low as f32, high as f32) }
}

/// Returns the values at two percentiles, by rank; 0 and 1 where there are no values.
fn percentiles(values: &[f32], low: f64, high: f64) -> (f64, f64) {
    let step = values.len().div_ceil(MAX_VALUES).max(1);
    let mut finite: Vec<f32> = values.iter().copied().filter(|value| value.is_finite()).step_by(step).collect();
    if low == 0.0 && high == 100.0 {
        // A subset would miss the extremes: examine all values.
        let all = || values.iter().copied().filter(|value| value.is_finite());
        let ends =
            all().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        return if ends.0 <= ends.1 { (ends.0.into(), ends.1.into()) } else { (0.0, 1.0) };
    }
    let Some(last) = finite.len().checked_sub(1) else { return (0.0, 1.0) };
    let mut at = |percent: f64| {
        let rank = (percent / 100.0 * last as f64).round() as usize;
        let (_, value, _) = finite.select_nth_unstable_by(rank.min(last), f32::total_cmp);
        f64::from(*value)
    };
    (at(low), at(high))
}

/// Returns the values of a sample type that are black and white without a stretch.
pub fn type_range(image: &Image) -> (f64, f64) {
    let bits = image.layout().bits.min(64);
    match image.sample() {
        SampleType::U8 | SampleType::U16 | SampleType::U32 | SampleType::U64 => (0.0, 2f64.powi(bits.into()) - 1.0),
        SampleType::I8 | SampleType::I16 | SampleType::I32 | SampleType::I64 => {
            let half = 2f64.powi(i32::from(bits) - 1);
            (-half, half - 1.0)
        }
        // Floats have no range of their own; 0 to 1 is customary.
        _ => (0.0, 1.0),
    }
}

/// Returns the brightness of a value, from 0 to 1.
pub fn brightness(value: f32, (low, high): (f32, f32)) -> f32 {
    ((value - low) / (high - low)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_leave_outliers_out() {
        let mut values: Vec<f32> = (0..=1000).map(|value| value as f32).collect();
        values[1000] = 1e30;
        values.extend([f32::NAN, f32::INFINITY]);
        assert_eq!(percentiles(&values, 2.0, 98.0), (20.0, 980.0));
        assert_eq!(percentiles(&values, 0.0, 100.0), (0.0, f64::from(1e30f32)));
    }

    #[test]
    fn an_image_without_data_has_some_range() {
        assert_eq!(percentiles(&[f32::NAN], 2.0, 98.0), (0.0, 1.0));
        assert_eq!(percentiles(&[], 0.0, 100.0), (0.0, 1.0));
    }

    #[test]
    fn brightness_is_clamped() {
        assert_eq!(brightness(-5.0, (0.0, 10.0)), 0.0);
        assert_eq!(brightness(2.5, (0.0, 10.0)), 0.25);
        assert_eq!(brightness(f32::INFINITY, (0.0, 10.0)), 1.0);
    }
}
