//! Checks that block sizes change no pixel, and that the rules are GDAL's: by values computed by hand and by GDAL 3.12.2.

use super::*;
use crate::half;

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        })
        .collect()
}

/// Native samples without NaN, so that bytes can be compared.
fn samples(sample: SampleType, count: usize, seed: u64) -> Vec<u8> {
    let word = sample.word();
    let mut bytes = noise(count * sample.size(), seed);
    if sample.is_float() {
        for (i, byte) in bytes.iter_mut().enumerate().filter(|(i, _)| i % word == word - 1) {
            *byte = 0x3b + (i % 5) as u8;
        }
    }
    bytes
}

/// Whether this is an emulator that cannot compute a root mean square of singles. QEMU 7.2, which was repaired in July 2023,
/// multiplies two singles to a double wrongly on s390x (`MDEBR`): it takes the bits of the first for those of a double.
fn is_miscomputed(sample: SampleType, method: Resampling) -> bool {
    let three = std::hint::black_box(3.0f32);
    let wrong = || f64::from(three) * f64::from(std::hint::black_box(three)) != 9.0;
    let singles = sample.is_complex() || matches!(sample, SampleType::F16 | SampleType::F32);
    method == Resampling::Rms && singles && wrong()
}

fn whole(shrink: &Shrink, source: &[u8], mask: Option<&[u8]>) -> Vec<u8> {
    let (w, h) = shrink.target();
    let stride = w as usize * shrink.sample.size();
    let mut out = vec![0; stride * h as usize];
    shrink.run(source, mask, 0, 0..h, 0..w, &mut out, stride, &mut ShrinkScratch::new()).unwrap();
    out
}

fn typed<T: bytemuck::Pod>(
    from: (u32, u32),
    to: (u32, u32),
    sample: SampleType,
    method: Resampling,
    nodata: Option<T>,
    source: &[T],
    mask: Option<&[u8]>,
) -> Vec<T> {
    let nodata = nodata.as_ref().map(bytemuck::bytes_of);
    let shrink = Shrink::new(from, to, sample, method, nodata).unwrap();
    whole(&shrink, bytemuck::cast_slice(source), mask)
        .chunks_exact(size_of::<T>())
        .map(bytemuck::pod_read_unaligned)
        .collect()
}

#[test]
fn means_that_are_no_number_have_one_pattern() {
    let (one, other) = (f32::from_bits(0xffc1_2345), f32::from_bits(0x7fe0_0001));
    let source = [one, 1.0, other, one, f32::INFINITY, 2.0, 3.0, other, f32::NEG_INFINITY, 4.0];
    for (to, method) in [((2, 1), Resampling::Average), ((1, 1), Resampling::Rms), ((2, 1), Resampling::Cubic)] {
        for mean in typed((5, 2), to, SampleType::F32, method, None, &source, None) {
            assert_eq!(mean.to_bits(), 0x7fc0_0000, "{method}");
        }
    }
    let halves = typed((4, 2), (2, 1), SampleType::F32, Resampling::Average, None, &source[..8], None);
    assert!(halves.iter().all(|mean| mean.to_bits() == 0x7fc0_0000), "{halves:?}");
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri an hour; the smaller tests go the same ways")]
fn cuts_and_alignment_change_nothing() {
    let sizes = [((26, 22), (13, 11)), ((27, 23), (13, 11)), ((25, 9), (13, 5)), ((24, 13), (12, 6)), ((1, 9), (1, 4))];
    for sample in SampleType::ALL {
        let sound = |method: &Resampling| method.supports(sample) && !is_miscomputed(sample, *method);
        for method in Resampling::ALL.into_iter().filter(sound) {
            for ((from, to), kind) in sizes.into_iter().flat_map(|size| [(size, 0), (size, 1), (size, 2)]) {
                let source = samples(sample, (from.0 * from.1) as usize, 7);
                let mask: Vec<u8> =
                    noise((from.0 * from.1) as usize, 3).iter().map(|b| if b % 3 == 0 { 0 } else { 255 }).collect();
                let nodata = (kind == 1).then(|| &source[..sample.word()]);
                let mask = (kind == 2).then_some(&mask[..]);
                let shrink = Shrink::new(from, to, sample, method, nodata).unwrap();
                let expected = whole(&shrink, &source, mask);
                let size = sample.size();
                let stride = to.0 as usize * size;
                let mut scratch = ShrinkScratch::new();
                for (rows, columns, shift) in [(1, 1, 0), (3, 5, 1), (2, 7, 0), (4, 100, 3)] {
                    let mut out = vec![0; stride * to.1 as usize + shift];
                    for y in (0..to.1).step_by(rows) {
                        for x in (0..to.0).step_by(columns) {
                            let rows = y..(y + rows as u32).min(to.1);
                            let needs = shrink.needs(rows.clone());
                            let pixels = (needs.start * from.0) as usize..(needs.end * from.0) as usize;
                            let mut part = vec![0; shift];
                            part.extend_from_slice(&source[pixels.start * size..pixels.end * size]);
                            let at = shift + y as usize * stride + x as usize * size;
                            let mask = mask.map(|mask| &mask[pixels]);
                            let columns = x..(x + columns as u32).min(to.0);
                            shrink
                                .run(
                                    &part[shift..],
                                    mask,
                                    needs.start,
                                    rows,
                                    columns,
                                    &mut out[at..],
                                    stride,
                                    &mut scratch,
                                )
                                .unwrap();
                        }
                    }
                    assert_eq!(out[shift..], expected, "{sample} {method} {from:?} kind {kind} cut {rows}x{columns}");
                }
            }
        }
    }
}

#[test]
fn wrong_buffers_are_errors() {
    let shrink = Shrink::new((8, 8), (4, 4), SampleType::U16, Resampling::Cubic, None).unwrap();
    let (source, mut out, mut scratch) = (vec![0u8; 128], vec![0u8; 32], ShrinkScratch::new());
    let mut run = |source: &[u8], mask: Option<&[u8]>, first, rows, columns, out: &mut [u8], stride| {
        shrink.run(source, mask, first, rows, columns, out, stride, &mut scratch)
    };
    assert_eq!(run(&source, None, 0, 0..4, 0..4, &mut out, 8), Ok(()));
    assert_eq!(run(&source[..127], None, 0, 0..4, 0..4, &mut out, 8), Err(ShrinkError::Buffer));
    assert_eq!(run(&source, Some(&[1; 63]), 0, 0..4, 0..4, &mut out, 8), Err(ShrinkError::Buffer));
    assert_eq!(run(&source, None, 1, 0..4, 0..4, &mut out, 8), Err(ShrinkError::Buffer));
    assert_eq!(run(&source, None, 0, 0..5, 0..4, &mut out, 8), Err(ShrinkError::Buffer));
    assert_eq!(run(&source, None, 0, 0..4, 0..5, &mut out, 8), Err(ShrinkError::Buffer));
    assert_eq!(run(&source, None, 0, 0..4, 0..4, &mut out[..31], 8), Err(ShrinkError::Buffer));
    assert_eq!(run(&source, None, 0, 0..4, 0..4, &mut out, 7), Err(ShrinkError::Buffer));
    assert_eq!(run(&source, None, 0, 0..4, 0..4, &mut out, usize::MAX), Err(ShrinkError::Buffer));
    assert_eq!(run(&[], None, 9, 2..2, 0..4, &mut [], 0), Ok(()));
    assert!(matches!(Shrink::new((8, 8), (0, 4), SampleType::U8, Resampling::Mode, None), Err(ShrinkError::Size)));
    assert!(matches!(Shrink::new((8, 8), (9, 4), SampleType::U8, Resampling::Mode, None), Err(ShrinkError::Size)));
    let complex = Shrink::new((8, 8), (4, 4), SampleType::CF32, Resampling::Median, None);
    assert!(matches!(complex, Err(ShrinkError::Undefined(Resampling::Median, SampleType::CF32))));
}

#[test]
fn levels_are_those_of_the_cog_driver() {
    assert_eq!(levels(512, 512, 512), []);
    assert_eq!(levels(513, 512, 512), [(256, 256)]);
    assert_eq!(levels(1025, 3, 512), [(512, 1)]);
    assert_eq!(levels(513, 2000, 512), [(256, 1000), (128, 500)]);
    assert_eq!(levels(5000, 700, 512), [(2500, 350), (1250, 175), (625, 87), (312, 43)]);
    assert_eq!(levels(1, 5000, 512), [(1, 2500), (1, 1250), (1, 625), (1, 312)]);
    assert_eq!(levels_by_factors(1001, 777, &[2, 4, 8]), [(501, 389), (251, 195), (126, 98)]);
}

#[test]
fn names_go_both_ways() {
    for method in Resampling::ALL {
        assert_eq!(method.to_string().parse(), Ok(method));
        assert_eq!(method.name().to_uppercase().parse(), Ok(method));
    }
    assert!("gauss".parse::<Resampling>().is_err());
}

/// One cell of four pixels.
fn cell<T: bytemuck::Pod>(sample: SampleType, method: Resampling, nodata: Option<T>, source: [T; 4]) -> T {
    typed((2, 2), (1, 1), sample, method, nodata, &source, None)[0]
}

#[test]
fn averages_round_as_gdal_does() {
    use Resampling::Average;
    assert_eq!(cell(SampleType::U8, Average, None, [0u8, 0, 1, 1]), 1);
    assert_eq!(cell(SampleType::U8, Average, None, [255u8; 4]), 255);
    // Signed halves go away from zero.
    assert_eq!(cell(SampleType::I16, Average, None, [-1i16, -2, -1, -2]), -2);
    assert_eq!(cell(SampleType::I16, Average, None, [-1i16, -1, -1, 2]), 0);
    assert_eq!(cell(SampleType::I8, Average, None, [-128i8; 4]), -128);
    assert_eq!(cell(SampleType::I32, Average, None, [i32::MIN, i32::MIN, i32::MIN, i32::MIN + 2]), i32::MIN);
    assert_eq!(cell(SampleType::U32, Average, None, [u32::MAX; 4]), u32::MAX);
    assert_eq!(cell(SampleType::F32, Average, None, [f32::MAX; 4]), f32::MAX);
    assert!(cell(SampleType::F32, Average, None, [f32::NAN, 1.0, 2.0, 6.0]).is_nan());
}

/// Results of GDAL, cell by cell.
#[test]
fn averages_keep_off_nodata() {
    use Resampling::Average;
    assert_eq!(cell(SampleType::U8, Average, Some(0), [0u8, 0, 1, 255]), 128);
    assert_eq!(cell(SampleType::U8, Average, Some(10), [9u8, 11, 9, 11]), 11);
    assert_eq!(cell(SampleType::U8, Average, Some(255), [255u8; 4]), 255);
    assert_eq!(cell(SampleType::I16, Average, Some(10), [9i16, 11, 9, 11]), 11);
    assert_eq!(cell(SampleType::I16, Average, Some(0), [1i16, -1, 1, -1]), 1);
    // Compared before it is rounded: a third is not zero, but becomes it.
    assert_eq!(cell(SampleType::I16, Average, Some(0), [1i16, -1, 1, 0]), 0);
    assert_eq!(cell(SampleType::I32, Average, Some(0), [-1i32, -2, 0, 0]), -2);
    assert_eq!(cell(SampleType::F32, Average, Some(10.0), [9f32, 11.0, 9.0, 11.0]), 10f32.next_up());
    assert_eq!(cell(SampleType::F64, Average, Some(0.0), [-1f64, 1.0, -1.0, 1.0]), 5e-324);
    assert_eq!(cell(SampleType::F32, Average, Some(f32::NAN), [f32::NAN, 1.0, 2.0, 6.0]), 3.0);
    assert!(cell(SampleType::F32, Average, Some(f32::NAN), [f32::NAN; 4]).is_nan());
    // Near nodata is nodata.
    assert_eq!(cell(SampleType::F32, Average, Some(-9999.0), [-9999.003f32, -9999.0, 5.0, 5.0]), 5.0);
    assert_eq!(cell(SampleType::F32, Average, Some(-9999.0), [-9999.01f32, -9999.0, 5.0, 5.0]), -3329.67);
    assert_eq!(cell(SampleType::F64, Average, Some(-9999.0), [-9999.0 * (1.0 + 4.7e-7), 5.0, 5.0, 5.0]), 5.0);
}

#[test]
fn modes_take_the_first_to_get_there() {
    use Resampling::Mode;
    let mode = |source| cell(SampleType::U16, Mode, None::<u16>, source);
    assert_eq!([mode([1, 2, 2, 1]), mode([1, 2, 3, 2]), mode([4, 1, 2, 3]), mode([1, 2, 3, 3])], [2, 2, 4, 3]);
    assert_eq!(cell(SampleType::U8, Mode, Some(7), [7u8, 7, 7, 2]), 2);
    assert_eq!(typed((2, 2), (1, 1), SampleType::U8, Mode, None, &[7u8, 7, 7, 2], Some(&[0, 0, 0, 1])), [7]);
    assert_eq!(typed((2, 2), (1, 1), SampleType::I8, Mode, None, &[7i8, 7, 7, 2], Some(&[0, 0, 0, 1])), [2]);
    // With a mask, nodata is only a value to avoid and to fill with.
    let both = |source: &[u8], mask: &[u8]| {
        typed((2, 2), (1, 1), SampleType::U8, Resampling::Average, Some(3), source, Some(mask))[0]
    };
    assert_eq!([both(&[3, 3, 5, 5], &[1; 4]), both(&[3; 4], &[1; 4]), both(&[9; 4], &[0; 4])], [4, 4, 3]);
    // A negative nodata is lost in GDAL.
    assert_eq!(cell(SampleType::I16, Mode, Some(-5), [-5i16; 4]), 0);
    let shrink =
        Shrink::new((2, 2), (1, 1), SampleType::I16, Mode, Some(&(-5i16).to_ne_bytes())).unwrap().without_quirks();
    assert_eq!(whole(&shrink, bytemuck::cast_slice(&[-5i16; 4]), None), (-5i16).to_ne_bytes());
}

#[test]
fn ranks_count_valid_pixels() {
    use Resampling::{Max, Median, Min};
    assert_eq!(cell(SampleType::U8, Min, Some(0), [0u8, 9, 4, 7]), 4);
    assert_eq!(cell(SampleType::I16, Max, Some(9), [-3i16, 9, -4, -7]), -3);
    assert_eq!(cell(SampleType::U8, Median, None, [5u8, 1, 9, 3]), 3);
    assert_eq!(cell(SampleType::U8, Median, Some(3), [5u8, 1, 9, 3]), 5);
    assert_eq!(cell(SampleType::F32, Median, None, [5f32, 1.0, 9.0, 2.0]), 3.5);
    assert_eq!(cell(SampleType::F32, Median, None, [f32::NAN, 1.0, 9.0, 2.0]), 2.0);
    assert!(cell(SampleType::F32, Max, None, [f32::NAN; 4]).is_nan());
    let nine: Vec<u16> = vec![8, 1, 7, 3, 5, 4, 2, 9, 6];
    assert_eq!(typed((3, 3), (1, 1), SampleType::U16, Median, None, &nine, None), [5]);
}

#[test]
fn rms_of_integers_is_the_root_of_the_closest_square() {
    assert_eq!(cell(SampleType::U8, Resampling::Rms, None, [0u8, 0, 0, 5]), 2);
    assert_eq!(cell(SampleType::U8, Resampling::Rms, None, [255u8; 4]), 255);
    assert_eq!(cell(SampleType::F32, Resampling::Rms, None, [0f32, 0.0, 0.0, 7.0]), 3.5);
    assert_eq!(cell(SampleType::I16, Resampling::Rms, None, [-3i16; 4]), 3);
}

#[test]
fn masks_shrink_by_themselves() {
    let mask = [0u8, 255, 0, 0, 0, 0, 100, 50];
    let shrink = |method| {
        let shrink = Shrink::new((4, 2), (2, 1), SampleType::U8, method, None).unwrap();
        let mut out = [9; 2];
        shrink.shrink_mask(&mask, 0, 0..1, 0..2, &mut out, 2, &mut ShrinkScratch::new()).unwrap();
        out
    };
    assert_eq!(shrink(Resampling::Average), [255, 75]);
    assert_eq!(shrink(Resampling::Nearest), [0, 0]);
    assert_eq!(shrink(Resampling::Mode), [0, 0]);
}

#[test]
fn halves_keep_their_value() {
    for bits in (0..=u16::MAX).filter(|bits| bits & 0x7fff <= 0x7c00) {
        assert_eq!(half::narrow(half::widen(bits)), bits);
    }
    assert!(half::widen(0x7e01).is_nan());
    assert_eq!([half::narrow(65519.9), half::narrow(65520.0), half::narrow(1e-8)], [0x7bff, 0x7c00, 0]);
    assert_eq!(
        [half::beside(0.0), half::beside(65504.0), half::beside(-1.0)],
        [2f64.powi(-24), 65472.0, -1.0 + 2f64.powi(-11)]
    );
}

include!("golden.rs");

#[test]
#[cfg_attr(miri, ignore = "takes Miri an hour; the smaller tests go the same ways")]
fn columns_by_themselves_give_the_pixels_of_the_whole() {
    use Resampling as R;
    let methods =
        [R::Nearest, R::Average, R::Bilinear, R::Cubic, R::Lanczos, R::Mode, R::Rms, R::Min, R::Max, R::Median];
    for (from, to) in
        [((64, 8), (32, 4)), ((75, 9), (38, 5)), ((70, 8), (35, 4)), ((61, 10), (20, 3)), ((41, 7), (11, 2))]
    {
        for sample in SampleType::ALL {
            let sound = |method: &Resampling| method.supports(sample) && !is_miscomputed(sample, *method);
            for method in methods.into_iter().filter(sound) {
                let count = (from.0 * from.1) as usize;
                let source = samples(sample, count, 7);
                let mask: Vec<u8> = noise(count, 8).into_iter().map(|byte| if byte < 200 { 255 } else { 0 }).collect();
                let nodata = source.get(..sample.word()).unwrap();
                for (nodata, mask) in [(None, None), (Some(nodata), None), (None, Some(&mask[..]))] {
                    let full = Shrink::new(from, to, sample, method, nodata).unwrap().without_quirks();
                    let expected = whole(&full, &source, mask);
                    let shrink = ColumnShrink::new(from, to, sample, method, nodata).unwrap();
                    for columns in [0..to.0, 0..3, 3..4, 4..to.0, to.0 - 1..to.0] {
                        let needed = shrink.needed_columns(&columns);
                        let part = shrink.columns(columns.clone(), &needed).unwrap();
                        let cut = |bytes: &[u8], size: usize| -> Vec<u8> {
                            let rows = bytes.chunks(from.0 as usize * size);
                            let range = needed.start as usize * size..needed.end as usize * size;
                            rows.flat_map(|row| row[range.clone()].to_vec()).collect()
                        };
                        let size = sample.size();
                        let (own, own_mask) = (cut(&source, size), mask.map(|mask| cut(mask, 1)));
                        let made = whole(&part, &own, own_mask.as_deref());
                        let range = columns.start as usize * size..columns.end as usize * size;
                        let wanted = expected.chunks(to.0 as usize * size).flat_map(|row| row[range.clone()].to_vec());
                        assert_eq!(
                            made,
                            wanted.collect::<Vec<_>>(),
                            "{from:?} {to:?} {sample:?} {method:?} {columns:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn columns_that_lack_their_source_are_errors() {
    let shrink = ColumnShrink::new((64, 8), (32, 4), SampleType::U8, Resampling::Cubic, None).unwrap();
    let needed = shrink.needed_columns(&(4..8));
    assert!(shrink.columns(4..8, &(needed.start + 1..needed.end)).is_err());
    assert!(shrink.columns(4..8, &(needed.start..needed.end - 1)).is_err());
    assert!(shrink.columns(8..8, &needed).is_err() && shrink.columns(31..33, &(0..64)).is_err());
}
