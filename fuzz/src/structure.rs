//! Directories, tags and their meaning, as pure functions over bytes.

use swath_tiff::{
    Grid, Window,
    geo::{GeoKeys, Nodata, Rpc, gdal_xml, pam, parse_user, wkt, world, xml},
    structure::{
        Bytes, Header, Ifd, Layout, Table,
        chain::{Chain, Visited, sub_ifds},
        ghost::Ghost,
    },
    tag,
};

use crate::{Input, limits};

/// Every directory of a file, or none.
fn directories(data: &[u8]) -> Option<(Bytes, Header, Vec<Ifd>)> {
    let bytes = Bytes::whole(data.to_vec());
    let header = Header::parse(&bytes).ok()?;
    let mut chain = Chain::starting_at(header.first_ifd);
    let mut visited = Visited::default();
    chain.walk(&mut visited, &bytes, &header, &limits()).expect("all bytes are there");
    let (mut ifds, _) = chain.into_parts();
    assert!(ifds.len() <= limits().ifds as usize);
    for at in 0..ifds.len() {
        for offset in sub_ifds(&ifds[at], &bytes, &header, &limits()).unwrap_or_default().into_iter().take(8) {
            ifds.extend(Ifd::parse(&bytes, &header, offset));
        }
    }
    Some((bytes, header, ifds))
}

/// A file's header, chains, tags, layouts and tables.
pub fn structure(data: &[u8]) {
    let Some((bytes, header, ifds)) = directories(data) else { return };
    let _ = Ghost::parse(&bytes, &header);
    for ifd in &ifds {
        for entry in &ifd.entries {
            if let Ok(value) = entry.value(&bytes, header.order, &limits()) {
                let _ = value.to_floats();
            }
        }
        for number in [tag::STRIP_OFFSETS, tag::TILE_OFFSETS, tag::TILE_BYTE_COUNTS] {
            if let Some(table) = ifd.entry(number).and_then(|entry| Table::new(entry, header.order)) {
                let range = table.byte_range(0..table.len().min(100));
                if let Some(raw) = data.get(range.start as usize..range.end as usize) {
                    assert!(table.decode(raw).len() <= 100);
                }
            }
        }
        if let Ok(layout) = Layout::parse(ifd, &bytes, &header, &limits()) {
            assert!(layout.width > 0 && layout.height > 0 && layout.tile_width > 0 && layout.tile_height > 0);
            let _ = layout.stored_len(layout.tile_height);
        }
    }
}

/// The tiles under a window cover it, each pixel once.
pub fn plan(data: &[u8]) {
    let mut input = Input(data);
    let corner = [input.u32(), input.u32(), input.u32(), input.u32()];
    let Some((bytes, header, ifds)) = directories(input.0) else { return };
    for ifd in ifds.iter().take(4) {
        let Ok(layout) = Layout::parse(ifd, &bytes, &header, &limits()) else { continue };
        let Ok(grid) = Grid::new(&layout) else { continue };
        let (x, y) = (corner[0] % layout.width, corner[1] % layout.height);
        let window = Window::new(x, y, 1 + corner[2] % (layout.width - x), 1 + corner[3] % (layout.height - y));
        let (columns, rows) = grid.span(&window);
        assert!(columns.end <= grid.across && rows.end <= grid.down, "{window:?} of {grid:?}");
        if columns.len() * rows.len() > 4096 {
            continue;
        }
        let mut covered = 0;
        for (column, row) in rows.flat_map(|row| columns.clone().map(move |column| (column, row))) {
            let cell = grid.cell(&window, column, row).expect("a tile of the span meets the window");
            let (across, down) = grid.visible(column, row);
            assert!(cell.inside.x_end() <= across.into() && cell.inside.y_end() <= down.into());
            assert!(cell.inside.y_end() <= cell.rows.into());
            assert!(u64::from(cell.x) + u64::from(cell.inside.width) <= window.width.into());
            assert!(u64::from(cell.y) + u64::from(cell.inside.height) <= window.height.into());
            covered += u64::from(cell.inside.width) * u64::from(cell.inside.height);
            assert_eq!(grid.position(grid.index(column, row, 0)), (column, row, 0));
        }
        assert_eq!(covered, u64::from(window.width) * u64::from(window.height));
    }
}

/// XML, WKT, world files, camera models, nodata and reference systems as users type them.
pub fn text(data: &[u8]) {
    let bounds = xml::Bounds { bytes: 1 << 20, depth: 64, nodes: 1 << 16 };
    if let Ok(metadata) = gdal_xml::parse(data, bounds) {
        let written = gdal_xml::write(&metadata);
        // Nothing to say is no text, and then the file gets no tag.
        if !written.is_empty() {
            let _ = gdal_xml::parse(written.as_bytes(), bounds).expect("what we write can be read");
        }
    }
    let _ = pam::parse(data, bounds);
    let _ = world::parse(data);
    let _ = Nodata::parse(data);
    let _ = Rpc::from_rpb(data);
    let _ = Rpc::from_lines(data);
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = wkt::Node::parse(text);
        let _ = parse_user(text);
    }
}

/// Keys of a GeoTIFF: any numbers, any lengths.
pub fn geokeys(data: &[u8]) {
    let mut input = Input(data);
    let (shorts, doubles) = (usize::from(input.u8()), usize::from(input.u8()));
    let directory: Vec<u16> = (0..shorts).map(|_| input.u16()).collect();
    let doubles: Vec<f64> = (0..doubles).map(|_| f64::from_bits(input.u64())).collect();
    let keys = GeoKeys::parse(&directory, &doubles, input.0);
    let _ = keys.crs();
}
