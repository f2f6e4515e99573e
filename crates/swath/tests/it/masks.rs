//! Which pixels are data.

use swath::ReadOptions;

use crate::build::{Directory, File, Tag};

#[test]
fn nodata_alpha_and_mask_directories_give_masks() {
    let plain = File::of(Directory::tiled(16, 16, 16, |x, _| x as u8));
    assert!(plain.open().unwrap().read_mask(&ReadOptions::default()).unwrap().bytes().iter().all(|byte| *byte == 255));

    let nodata = File::of(Directory::tiled(16, 16, 16, |x, _| x as u8).with(42113, Tag::Ascii("3")));
    let mask = nodata.open().unwrap().read_mask(&ReadOptions::default()).unwrap();
    assert_eq!(mask.bytes().iter().filter(|byte| **byte == 0).count(), 16);
    assert_eq!(mask.bytes()[3], 0);

    // One bit a pixel, set in the left half.
    let bits = Directory::tiled(16, 16, 16, |_, _| 0)
        .with(254, Tag::Long(vec![4]))
        .with(258, Tag::Short(vec![1]))
        .with(262, Tag::Short(vec![4]));
    let bits = Directory { tiles: vec![[0xff, 0x00].repeat(16)], ..bits };
    let masked = File { directories: vec![Directory::tiled(16, 16, 16, |_, _| 7), bits], ..File::default() };
    let mask = masked.open().unwrap().read_mask(&ReadOptions::default()).unwrap();
    assert_eq!(mask.bytes()[..16], [[255; 8], [0; 8]].concat());
}

#[test]
fn mask_of_a_window_is_the_window_of_the_mask() {
    let dataset =
        File::of(Directory::tiled(40, 40, 16, |x, y| (x + y) as u8).with(42113, Tag::Ascii("20"))).open().unwrap();
    let window = swath::Window::new(5, 6, 20, 12);
    let mask = dataset.read_mask(&ReadOptions::default().with_window(window)).unwrap();
    for (index, byte) in mask.bytes().iter().enumerate() {
        let (x, y) = (5 + index as u32 % 20, 6 + index as u32 / 20);
        assert_eq!(*byte == 0, x + y == 20);
    }
}
