use super::encode::{Code, Coding, Writer};
use super::*;

const EOL: &str = "000000000001";

const GROUP3: Scheme = Scheme::Group3 { two_dimensional: false, byte_aligned_eol: false };
const GROUP3_2D: Scheme = Scheme::Group3 { two_dimensional: true, byte_aligned_eol: false };

/// A small generator, so that failures repeat.
struct Rng(u64);

impl Rng {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % below
    }
}

/// Rows of runs of random length, each row much like the one before.
fn image(width: usize, rows: usize, longest: usize, rng: &mut Rng) -> Vec<Vec<bool>> {
    let mut row = Vec::new();
    let mut black = rng.next(2) == 1;
    while row.len() < width {
        let run = rng.next(longest) + 1;
        row.extend(std::iter::repeat_n(black, run.min(width - row.len())));
        black = !black;
    }
    (0..rows)
        .map(|_| {
            for _ in 0..rng.next(4) {
                let x = rng.next(width);
                row[x] = !row[x];
            }
            let by = rng.next(width.min(3));
            row.rotate_left(by);
            row.clone()
        })
        .collect()
}

fn pack(image: &[Vec<bool>]) -> Vec<u8> {
    image
        .iter()
        .flat_map(|row| {
            row.chunks(8)
                .map(|bits| bits.iter().enumerate().fold(0, |byte, (i, &black)| byte | u8::from(black) << (7 - i)))
        })
        .collect()
}

fn unpack_rows(packed: &[u8], width: usize) -> Vec<String> {
    packed
        .chunks(width.div_ceil(8))
        .map(|row| (0..width).map(|x| if row[x / 8] << (x % 8) & 0x80 != 0 { '#' } else { '.' }).collect())
        .collect()
}

fn decoded(src: &[u8], scheme: Scheme, width: u32, rows: u32) -> Result<(FaxEnd, Vec<String>), FaxError> {
    let mut dst = vec![0; width.div_ceil(8) as usize * rows as usize];
    let end = decode(src, scheme, false, width, rows, &mut dst, &mut FaxScratch::default())?;
    Ok((end, unpack_rows(&dst, width as usize)))
}

fn stream(codes: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut out = Writer::new(&mut bytes);
    for bit in codes.concat().chars() {
        out.put(Code::new(&bit.to_string()));
    }
    out.finish();
    bytes
}

fn encode(image: &[Vec<bool>], coding: Coding) -> Vec<u8> {
    let mut out = Vec::new();
    super::encode::encode(&pack(image), image.first().map_or(0, Vec::len), coding, &mut out).unwrap();
    out
}

fn fault(end: FaxEnd) -> Option<(Fault, u32, u32)> {
    end.damage.map(|damage| (damage.fault, damage.row, damage.x))
}

#[test]
fn every_coding_comes_back_at_odd_sizes_in_both_bit_orders() {
    let group3 = |k, aligned, return_to_control| Coding::Group3 { k, aligned, first_eol: true, return_to_control };
    let codings = [
        (Coding::Rle { align: 8 }, Scheme::Rle),
        (group3(None, false, false), GROUP3),
        (group3(None, true, true), GROUP3),
        (group3(Some(2), false, true), GROUP3_2D),
        (group3(Some(4), true, false), GROUP3_2D),
        (Coding::Group4 { end_of_block: true }, Scheme::Group4),
        (Coding::Group4 { end_of_block: false }, Scheme::Group4),
    ];
    let mut rng = Rng(0x5eed);
    let mut scratch = FaxScratch::default();
    for width in [1, 7, 8, 9, 31, 32, 33, 64, 65, 1000, 2559, 2560, 2561, 6000] {
        for longest in [1, 3, 40, 9000] {
            let image = image(width, 9, longest, &mut rng);
            let want = pack(&image);
            for (coding, scheme) in codings {
                let mut src = encode(&image, coding);
                // Bytes to spare, for `a_tiny_row_at_the_end_is_lost_to_padding_as_in_libtiff`.
                src.extend([0; 4]);
                for lsb_first in [false, true] {
                    for f in [decode, decode_by_scanline, decode_tile] {
                        let mut dst = vec![0xaa; want.len()];
                        let end = f(&src, scheme, lsb_first, width as u32, 9, &mut dst, &mut scratch).unwrap();
                        assert_eq!(
                            (end.rows, end.damage, end.eol_missing, end.depends_on_earlier),
                            (9, None, false, false),
                            "{coding:?} {width}"
                        );
                        assert!(dst == want, "{coding:?} width {width} longest {longest}");
                    }
                    src.iter_mut().for_each(|byte| *byte = byte.reverse_bits());
                }
            }
        }
    }
}

#[test]
fn word_aligned_rows_are_found_the_way_libtiff_finds_them() {
    // A white row takes one word. The next row has libtiff load a third byte, and then it skips a whole word more than it should: the third row is the fourth.
    // GDAL 3.12 shows the same.
    let word = |codes: &[&str]| format!("{:0<16}", codes.concat());
    let (white, dot, line) = (word(&["1110"]), word(&["1000", "010", "0111"]), word(&["0111", "0010", "000000"]));
    let src = stream(&[&white, &dot, &line, &white, &white]);
    let (end, rows) = decoded(&src, Scheme::RleWordAligned, 6, 3).unwrap();
    assert_eq!((end.rows, rows), (3, vec!["......".to_owned(), "...#..".to_owned(), "......".to_owned()]));
}

#[test]
fn a_bad_code_whitens_the_rest_of_its_row_and_the_next_eol_is_found() {
    // Black 00000000 1 is not a code.
    let src = stream(&[EOL, "1000", "000000001", EOL, "1000", "11", "1011", EOL, "1000", "11", "1011"]);
    let (end, rows) = decoded(&src, GROUP3, 9, 2).unwrap();
    assert_eq!(rows, [".........", "...##...."]);
    assert_eq!(fault(end), Some((Fault::BadCode, 0, 3)));
}

#[test]
fn group3_without_eols_is_decoded_from_the_start() {
    let src = stream(&["1000", "11", "1011", "1011", "11", "1000", "1"]);
    let (end, rows) = decoded(&src, GROUP3, 9, 2).unwrap();
    assert_eq!(rows, ["...##....", "....##..."]);
    assert!(end.eol_missing);
    assert_eq!(fault(end), Some((Fault::NoEol, 0, 0)));
    let again = decoded(&src, Scheme::Group3WithoutEol { two_dimensional: false }, 9, 2).unwrap();
    assert_eq!((again.1, again.0.eol_missing, again.0.damage), (rows, false, None));
}

#[test]
fn extra_eols_make_white_rows_and_a_short_row_is_filled() {
    let src = stream(&[EOL, "1000", "11", EOL, EOL, "1011", "11", "1000", EOL, EOL, EOL]);
    let (end, rows) = decoded(&src, GROUP3, 9, 3).unwrap();
    assert_eq!(rows, ["...##....", ".........", "....##..."]);
    assert_eq!(fault(end), Some((Fault::ShortRow, 0, 5)));
}

#[test]
fn a_run_too_long_is_dropped_not_clipped() {
    let src = stream(&["1000", "000101"]); // white 3, black 8 in a row of 9
    let (end, rows) = decoded(&src, Scheme::Rle, 9, 1).unwrap();
    assert_eq!((rows, fault(end)), (vec![".........".to_owned()], Some((Fault::LongRow, 0, 11))));
}

#[test]
fn a_group4_strip_may_end_early_but_not_in_its_first_row() {
    let row = ["001", "1000", "11", "1"]; // horizontal, white 3, black 2, V0
    let src = stream(&[&row[..], &["1", "1", "1", EOL, EOL]].concat());
    let mut dst = [0xee; 8];
    let end = decode(&src, Scheme::Group4, false, 9, 4, &mut dst, &mut FaxScratch::default()).unwrap();
    assert_eq!((end.rows, fault(end)), (3, Some((Fault::BlockEnd, 2, 0))));
    assert_eq!(dst, [0x18, 0, 0x18, 0, 0, 0, 0xee, 0xee]);
    assert_eq!(
        decode_by_scanline(&src, Scheme::Group4, false, 9, 4, &mut dst, &mut FaxScratch::default()),
        Err(FaxError::DataEnd { row: 2, x: 0 })
    );
    assert_eq!(decoded(&stream(&[EOL, EOL]), Scheme::Group4, 9, 4), Err(FaxError::DataEnd { row: 0, x: 0 }));
}

#[test]
fn data_that_ends_is_refused_in_strips_and_not_in_tiles() {
    let src = stream(&["10100"]); // white 9: one row of the two
    let mut dst = [0xee; 4];
    let scratch = &mut FaxScratch::default();
    assert_eq!(decode(&src, Scheme::Rle, false, 9, 2, &mut dst, scratch), Err(FaxError::DataEnd { row: 1, x: 0 }));
    let mut tile = [0xee; 6];
    let end = decode_tile(&src, Scheme::Rle, false, 9, 3, &mut tile, scratch).unwrap();
    assert_eq!((end.rows, fault(end), tile), (2, Some((Fault::DataEnd, 1, 0)), [0, 0, 0, 0, 0xee, 0xee]));
    assert_eq!(decode(&[], GROUP3, false, 9, 2, &mut dst, scratch), Err(FaxError::DataEnd { row: 0, x: 0 }));
}

#[test]
fn a_tiny_row_at_the_end_is_lost_to_padding_as_in_libtiff() {
    // The third row ends within thirteen bits of the data, the zeros made up to look at a black code count when the row is aligned, and so the fourth begins
    // too late. GDAL 3.12 shows the same.
    let src = [0x1c, 0xc7, 0x35, 0x18, 0x35, 0xe3, 0x73];
    let (end, rows) = decoded(&src, Scheme::Rle, 7, 4).unwrap();
    assert_eq!(rows, [".#####.", "#######", "##...##", "......."]);
    assert_eq!(fault(end).map(|fault| fault.1), Some(3));
    let (_, rows) = decoded(&[&src[..], &[0, 0]].concat(), Scheme::Rle, 7, 4).unwrap();
    assert_eq!(rows[3], "..#####");
}

#[test]
fn uncompressed_mode_is_refused_by_name() {
    let error = decoded(&stream(&["1", "0000001111", "000001"]), Scheme::Group4, 9, 2).unwrap_err();
    assert_eq!(error, FaxError::Uncompressed { row: 1, x: 0 });
    assert!(error.to_string().contains("uncompressed mode"));
}

#[test]
fn more_runs_than_libtiff_has_room_for_are_refused() {
    // White 0, black 1: two runs a pixel, and room for 128.
    let src = stream(&[&["00110101", "010"][..]; 100].concat());
    assert_eq!(decoded(&src, Scheme::Rle, 100, 1), Err(FaxError::TooManyRuns { row: 0 }));
    let empty = stream(&[&["00110101", "0000110111"][..]; 200].concat());
    assert!(matches!(decoded(&empty, Scheme::Rle, 100, 1), Err(FaxError::DataEnd { .. }) | Ok(_)));
}

#[test]
fn faults_without_end_stop_scanlines_only() {
    let (rows, src) = (9000, vec![0; 20_000]);
    let mut dst = vec![0; 2 * rows as usize];
    let scratch = &mut FaxScratch::default();
    assert!(decode(&src, Scheme::Rle, false, 16, rows, &mut dst, scratch).is_ok());
    assert_eq!(
        decode_by_scanline(&src, Scheme::Rle, false, 16, rows, &mut dst, scratch),
        Err(FaxError::TooManyFaults { row: 8192 })
    );
}

#[test]
fn sizes_that_do_not_fit_are_refused_before_memory_is_taken() {
    let scratch = &mut FaxScratch::default();
    assert!(matches!(decode(&[0], Scheme::Group4, false, 0, 1, &mut [], scratch), Err(FaxError::Size { .. })));
    assert!(matches!(decode(&[0], Scheme::Group4, false, u32::MAX, 1, &mut [0], scratch), Err(FaxError::Size { .. })));
    assert!(matches!(decode(&[0], Scheme::Group4, false, 9, 2, &mut [0; 3], scratch), Err(FaxError::Size { .. })));
    // No rows, or a wide row of few bytes, take little.
    assert!(decode(&[0], Scheme::Group4, false, i32::MAX as u32, 0, &mut [], scratch).is_ok());
    assert!(scratch.this.runs.capacity() < 1000);
}

#[test]
fn mutated_streams_neither_panic_nor_differ_by_scratch() {
    let mut rng = Rng(77);
    let mut scratch = FaxScratch::default();
    for round in 0..4000 {
        let (width, rows) = (rng.next(70) + 1, rng.next(12) + 1);
        let image = image(width, rows, 20, &mut rng);
        let (coding, scheme) = match round % 5 {
            0 => (Coding::Rle { align: 8 }, Scheme::Rle),
            1 => (Coding::Rle { align: 16 }, Scheme::RleWordAligned),
            2 => (Coding::Group3 { k: None, aligned: false, first_eol: true, return_to_control: true }, GROUP3),
            3 => (Coding::Group3 { k: Some(3), aligned: true, first_eol: true, return_to_control: false }, GROUP3_2D),
            _ => (Coding::Group4 { end_of_block: true }, Scheme::Group4),
        };
        let mut src = encode(&image, coding);
        for _ in 0..=rng.next(3) {
            let at = rng.next(src.len());
            src[at] ^= 1 << rng.next(8);
        }
        src.truncate(rng.next(src.len()) + 1);
        for f in [decode, decode_by_scanline, decode_tile] {
            let mut dst = vec![0; width.div_ceil(8) * rows];
            let mut fresh = dst.clone();
            let used = f(&src, scheme, false, width as u32, rows as u32, &mut dst, &mut scratch);
            assert_eq!(used, f(&src, scheme, false, width as u32, rows as u32, &mut fresh, &mut FaxScratch::default()));
            assert!(used.is_err() || dst == fresh);
        }
    }
}
