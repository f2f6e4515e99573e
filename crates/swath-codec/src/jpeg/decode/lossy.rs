//! Decodes DCT frames: runs the scans, then converts planes to rows.

use super::baseline::{self, Between, BlockGroup, MCUS_AT_ONCE, McuBlock, ScanComponent, Transform};
use super::bits::{Restarts, Segment, unstuff};
use super::color::{Emit, RowBuffers};
use super::error::{Damage, Fault, JpegError, grow};
use super::huffman::{Class, Table};
use super::layout::{Layout, Walk};
use super::markers::{Header, Process, Scan, StreamTables, Tables};
use super::progressive::{self, Pass};
use super::sample::Sample;
use super::{Color, MAX_SCANS, Stream};
use crate::jpeg::dct::LANES;
use swath_raster::simd::widest;

/// Most blocks in an MCU of several components (B.2.3).
pub(super) const MCU_BLOCKS: usize = 10;

/// Buffers of one sample width, reused between tiles.
#[derive(Debug, Default)]
pub(super) struct Buffers<S> {
    planes: [Vec<S>; 4],
    rows: RowBuffers<S>,
}

/// Buffers both widths share.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub entropy: Vec<u8>,
    pub segments: Vec<Segment>,
    groups: Vec<BlockGroup>,
    between: Between,
    blocks: Vec<progressive::Block>,
}

/// The output image.
pub(super) struct Target<'a> {
    pub color: Color,
    pub dst: &'a mut [u8],
    pub stride: usize,
}

/// Decodes the scans of a DCT frame, the first of which has been read.
#[expect(clippy::too_many_arguments, reason = "parts of one `decode` call, borrowed separately")]
pub(super) fn decode<S: Sample>(
    stream: &mut Stream<'_>,
    shared: Option<&Tables>,
    stream_tables: &mut StreamTables,
    header: &Header,
    first: Scan,
    target: Target<'_>,
    buffers: &mut Buffers<S>,
    work: &mut Work,
) -> Result<Option<Damage>, JpegError> {
    let frame_state = FrameState::new(header, shared);
    let mut frame = Frame { frame_state, target, buffers, next: 0 };
    frame.prepare(work)?;
    // Rows of a single-scan frame have already been written.
    if visit(&mut frame, stream, stream_tables, first, work)?.is_single {
        return Ok(frame.frame_state.damage);
    }
    if header.process == Process::Progressive {
        frame.transform(work);
    }
    frame.emit(frame.frame_state.layout.height);
    Ok(frame.frame_state.damage)
}

/// Bytes of the planes and blocks that [`Frame::prepare`] makes.
pub(super) fn frame_memory(header: &Header) -> u64 {
    let sample = if header.precision > 8 { 2 } else { 1 };
    let block = size_of::<progressive::Block>() as u64;
    let of = |samples: u64| match header.process {
        Process::Lossless => 0,
        Process::Progressive => samples * sample + samples / 64 * block,
        _ => samples * sample,
    };
    Layout::new(header).planes().iter().map(|plane| of(plane.stride as u64 * plane.rows as u64)).sum()
}

/// The state of a frame that decoding and checking share.
pub(super) struct FrameState<'f> {
    pub header: &'f Header,
    pub layout: Layout,
    shared: Option<&'f Tables>,
    pub damage: Option<Damage>,
    /// Each component's quantisation table, from its first scan on.
    quant: [Option<[u16; 64]>; 4],
}

/// Visits the scans of a frame.
pub(super) trait Visitor<'f> {
    fn frame_state(&mut self) -> &mut FrameState<'f>;

    /// Visits one scan; returns the offset of the marker that ends it.
    fn scan(
        &mut self,
        stream: &Stream<'_>,
        stream_tables: &StreamTables,
        scan: &Scan,
        work: &mut Work,
    ) -> Result<usize, JpegError>;
}

/// The result of visiting all scans.
pub(super) struct Visited {
    /// Whether one scan held all components of a sequential frame; what follows it was ignored.
    pub is_single: bool,
    /// Offset of the end of the last scan.
    pub end: usize,
}

/// Calls the visitor for every scan of a DCT frame, the first of which has been read. Decoding and checking share it, so that they
/// accept the same streams.
pub(super) fn visit<'f>(
    visitor: &mut impl Visitor<'f>,
    stream: &mut Stream<'_>,
    stream_tables: &mut StreamTables,
    first: Scan,
    work: &mut Work,
) -> Result<Visited, JpegError> {
    let FrameState { header, shared, .. } = *visitor.frame_state();
    let count = header.components.len();
    let mut scan = first;
    let mut scans = 1;
    let end = loop {
        for scanned in scan.components() {
            // libjpeg keeps the quantisation table a component has at its first scan.
            let latched = visitor.frame_state().quant.get_mut(scanned.index);
            let (Some(component), Some(latched)) = (header.components.get(scanned.index), latched) else { continue };
            if latched.is_none() {
                *latched = Some(*stream_tables.quant(shared, component.quant, scan.offset)?);
            }
        }
        let end = visitor.scan(stream, stream_tables, &scan, work)?;
        if header.process != Process::Progressive && scan.components().len() == count {
            return Ok(Visited { is_single: true, end });
        }
        stream.markers.seek(end);
        match stream.next_scan(stream_tables) {
            Ok(Some(next)) => scan = next,
            Ok(None) => {
                // Only EOI proves that the stream has all scans.
                if !stream.ended {
                    visitor.frame_state().fault(Fault::Truncated, stream.src.len() as u64);
                }
                break end;
            }
            Err(JpegError::Truncated { offset, .. }) => {
                visitor.frame_state().fault(Fault::BadTrailer, offset);
                break end;
            }
            Err(error) => return Err(error),
        }
        scans += 1;
        if scans > MAX_SCANS {
            return Err(JpegError::TooManyScans { offset: scan.offset });
        }
    };
    let frame_state = visitor.frame_state();
    if frame_state.quant.iter().take(count).any(Option::is_none) {
        frame_state.fault(Fault::MissingScan, stream.markers.position() as u64);
    }
    Ok(Visited { is_single: false, end })
}

/// The components of a sequential scan, and the blocks of its MCUs in coding order.
pub(super) struct SequentialScan<'a> {
    pub walk: Walk,
    pub components: [Option<ScanComponent<'a>>; 4],
    mcu_blocks: [McuBlock; MCU_BLOCKS],
    count: usize,
}

impl SequentialScan<'_> {
    pub fn mcu_blocks(&self) -> &[McuBlock] {
        self.mcu_blocks.get(..self.count).unwrap_or_default()
    }
}

impl<'f> FrameState<'f> {
    pub fn new(header: &'f Header, shared: Option<&'f Tables>) -> Self {
        Self { header, layout: Layout::new(header), shared, damage: None, quant: [None; 4] }
    }

    fn fault(&mut self, fault: Fault, offset: u64) {
        self.damage.get_or_insert(Damage { fault, offset });
    }

    fn walk(&self, scan: &Scan) -> Result<Walk, JpegError> {
        let walk = Walk::new(&self.layout, scan.components());
        let planes = scan.components().iter().map(|c| self.layout.plane(c.index));
        if walk.interleaved && planes.map(|p| p.h * p.v).sum::<usize>() > MCU_BLOCKS {
            return Err(JpegError::Malformed { what: "more than 10 blocks in an MCU", offset: scan.offset });
        }
        Ok(walk)
    }

    /// Returns the components of a sequential scan with their tables.
    pub fn scan_components<'a>(
        &self,
        stream_tables: &'a StreamTables,
        scan: &Scan,
    ) -> Result<SequentialScan<'a>, JpegError>
    where
        'f: 'a,
    {
        let walk = self.walk(scan)?;
        let mut components = [None, None, None, None];
        let mut groups = 0;
        let mut mcu_blocks = [McuBlock::default(); MCU_BLOCKS];
        for (index, (slot, component)) in components.iter_mut().zip(scan.components()).enumerate() {
            let plane = self.layout.plane(component.index);
            let (h, v) = walk.blocks(&plane);
            *slot = Some(baseline::ScanComponent {
                index: component.index,
                h,
                v,
                stride: plane.stride,
                dc: dc_table(stream_tables, self.shared, component.dc, scan.offset)?,
                ac: stream_tables.huffman(self.shared, Class::Ac, component.ac, scan.offset)?,
                quant: self.quant.get(component.index).copied().flatten().unwrap_or([0; 64]),
                prediction: 0,
                first_group: groups,
            });
            for (at, mcu_block) in mcu_blocks.iter_mut().skip(groups).take(h * v).enumerate() {
                *mcu_block = McuBlock { component: index, x: at % h, first_group: groups + at - at % h };
            }
            groups += h * v;
        }
        Ok(SequentialScan { walk, components, mcu_blocks, count: groups })
    }
}

struct Frame<'f, S> {
    frame_state: FrameState<'f>,
    target: Target<'f>,
    buffers: &'f mut Buffers<S>,
    /// Next image row to write.
    next: usize,
}

impl<'f, S: Sample> Visitor<'f> for Frame<'f, S> {
    fn frame_state(&mut self) -> &mut FrameState<'f> {
        &mut self.frame_state
    }

    fn scan(
        &mut self,
        stream: &Stream<'_>,
        stream_tables: &StreamTables,
        scan: &Scan,
        work: &mut Work,
    ) -> Result<usize, JpegError> {
        match self.frame_state.header.process {
            Process::Progressive => self.progressive_scan(stream, stream_tables, scan, work),
            _ => self.sequential_scan(stream, stream_tables, scan, work),
        }
    }
}

impl<S: Sample> Frame<'_, S> {
    fn prepare(&mut self, work: &mut Work) -> Result<(), JpegError> {
        for (plane, samples) in self.frame_state.layout.planes().iter().zip(&mut self.buffers.planes) {
            grow(samples, plane.stride * plane.rows)?;
        }
        self.buffers.rows.make_room(&self.frame_state.layout)?;
        if self.frame_state.header.process == Process::Progressive {
            let need = self.frame_state.layout.planes().iter().map(|p| p.stride * p.rows / 64).sum();
            work.blocks.clear();
            grow(&mut work.blocks, need)?;
        }
        // `MCUS_AT_ONCE` MCUs fill as many groups as an MCU has blocks.
        if work.groups.len() < MCU_BLOCKS {
            grow(&mut work.groups, MCU_BLOCKS)?;
        }
        Ok(())
    }

    fn sequential_scan(
        &mut self,
        stream: &Stream<'_>,
        stream_tables: &StreamTables,
        scan: &Scan,
        work: &mut Work,
    ) -> Result<usize, JpegError> {
        let mut sequential = self.frame_state.scan_components(stream_tables, scan)?;
        let walk = sequential.walk;
        let SequentialScan { components, mcu_blocks, count, .. } = &mut sequential;
        let mcu_blocks = mcu_blocks.get(..*count).unwrap_or_default();
        let (mut restarts, end) = entropy(stream, scan, &walk, &mut work.entropy, &mut work.segments)?;
        // An error in an earlier tile may have left coefficients.
        work.groups.fill_with(BlockGroup::default);
        let whole = scan.components().len() == self.frame_state.layout.planes().len();
        let mut reader = restarts.reader();
        for row in 0..walk.mcus_h {
            for mcu in (0..walk.mcus_w).step_by(MCUS_AT_ONCE) {
                let mcus = MCUS_AT_ONCE.min(walk.mcus_w - mcu);
                let (groups, restarts) = (&mut work.groups, &mut restarts);
                reader = widest(baseline::DecodeMcus { components, mcu_blocks, groups, restarts, reader, mcus });
                self.transform_groups(components, groups, &mut work.between, row, mcu, mcus);
            }
            if whole {
                // Rows are written while their samples are in the cache. The last ones of the MCU row wait for the row below, which their
                // filter reads.
                let mcu_rows = if walk.interleaved { self.frame_state.layout.v_max * 8 } else { 8 };
                let ready = if row + 1 == walk.mcus_h {
                    self.frame_state.layout.height
                } else {
                    (row + 1) * mcu_rows - self.frame_state.layout.v_max
                };
                self.emit(ready.min(self.frame_state.layout.height));
            }
        }
        self.frame_state.damage = self.frame_state.damage.or(restarts.damage);
        Ok(end)
    }

    fn transform_groups(
        &mut self,
        components: &[Option<ScanComponent<'_>>; 4],
        groups: &mut [BlockGroup],
        between: &mut Between,
        row: usize,
        mcu: usize,
        mcus: usize,
    ) {
        for component in components.iter().flatten() {
            let Some(plane) = self.buffers.planes.get_mut(component.index) else { continue };
            for v in 0..component.v {
                // The last MCUs of a row may leave groups without a block, and the plane without room for them.
                for nth in 0..(mcus * component.h).div_ceil(LANES) {
                    let Some(group) = groups.get_mut(component.first_group + v * component.h + nth) else { continue };
                    let at = (row * component.v + v) * 8 * component.stride + (mcu * component.h + nth * LANES) * 8;
                    widest(Transform { group, quant: &component.quant, between, plane, at, stride: component.stride });
                }
            }
        }
    }

    /// Decodes one scan of a progressive frame into the coefficient blocks. Returns the offset of the marker after it.
    fn progressive_scan(
        &mut self,
        stream: &Stream<'_>,
        stream_tables: &StreamTables,
        scan: &Scan,
        work: &mut Work,
    ) -> Result<usize, JpegError> {
        let walk = self.frame_state.walk(scan)?;
        let pass = Pass::of(scan)?;
        let mut components = [None, None, None, None];
        for (slot, component) in components.iter_mut().zip(scan.components()) {
            let plane = self.frame_state.layout.plane(component.index);
            let (h, v) = walk.blocks(&plane);
            let table = match pass {
                Pass::DcFirst => Some(dc_table(stream_tables, self.frame_state.shared, component.dc, scan.offset)?),
                Pass::DcRefine => None,
                Pass::AcFirst | Pass::AcRefine => {
                    Some(stream_tables.huffman(self.frame_state.shared, Class::Ac, component.ac, scan.offset)?)
                }
            };
            let first = self.first_block(component.index);
            *slot = Some(progressive::ScanComponent { h, v, table, prediction: 0, first, stride: plane.stride / 8 });
        }
        let (mut restarts, end) = entropy(stream, scan, &walk, &mut work.entropy, &mut work.segments)?;
        let mut reader = restarts.reader();
        let mut run = 0;
        for row in 0..walk.mcus_h {
            reader = widest(progressive::McuRow {
                components: &mut components,
                blocks: &mut work.blocks,
                restarts: &mut restarts,
                reader,
                run: &mut run,
                pass,
                scan,
                mcus: walk.mcus_w,
                row,
            });
        }
        self.frame_state.damage = self.frame_state.damage.or(restarts.damage);
        Ok(end)
    }

    fn first_block(&self, index: usize) -> usize {
        self.frame_state.layout.planes().iter().take(index).map(|p| p.stride * p.rows / 64).sum()
    }

    fn transform(&mut self, work: &mut Work) {
        work.groups.fill_with(BlockGroup::default);
        let Some(group) = work.groups.first_mut() else { return };
        for (index, plane) in self.frame_state.layout.planes().iter().enumerate() {
            let first = self.first_block(index);
            let quant = self.frame_state.quant.get(index).copied().flatten().unwrap_or([0; 64]);
            let Some(samples) = self.buffers.planes.get_mut(index) else { continue };
            for row in 0..plane.rows / 8 {
                let at = first + row * (plane.stride / 8);
                let blocks = work.blocks.get(at..at + plane.stride / 8).unwrap_or_default();
                for (nth, blocks) in blocks.chunks(LANES).enumerate() {
                    progressive::gather(blocks, group);
                    let at = row * 8 * plane.stride + nth * 64;
                    widest(Transform {
                        group,
                        quant: &quant,
                        between: &mut work.between,
                        plane: samples,
                        at,
                        stride: plane.stride,
                    });
                }
            }
        }
    }

    /// Writes image rows up to `to`.
    fn emit(&mut self, to: usize) {
        if self.frame_state.header.process != Process::Progressive {
            for (index, samples) in
                self.buffers.planes.iter_mut().enumerate().take(self.frame_state.layout.planes().len())
            {
                if self.frame_state.quant.get(index).is_some_and(Option::is_none) {
                    samples.fill(S::clamped(S::CENTRE));
                }
            }
        }
        widest(Emit {
            layout: &self.frame_state.layout,
            planes: &self.buffers.planes,
            rows: &mut self.buffers.rows,
            color: self.target.color,
            from: self.next,
            to,
            dst: self.target.dst,
            stride: self.target.stride,
        });
        self.next = to;
    }
}

/// A DC table for a DCT scan, where the size 16 of lossless tables has no meaning.
fn dc_table<'a>(
    stream_tables: &'a StreamTables,
    shared: Option<&'a Tables>,
    slot: u8,
    offset: u64,
) -> Result<&'a Table, JpegError> {
    let table = stream_tables.huffman(shared, Class::Dc, slot, offset)?;
    if table.largest > 15 {
        return Err(JpegError::Malformed { what: "DC size over 15", offset });
    }
    Ok(table)
}

pub(super) fn entropy<'w>(
    stream: &Stream<'_>,
    scan: &Scan,
    walk: &Walk,
    bytes: &'w mut Vec<u8>,
    segments: &'w mut Vec<Segment>,
) -> Result<(Restarts<'w>, usize), JpegError> {
    let most = match stream.interval {
        0 => 1,
        interval => walk.mcus_w * walk.mcus_h / interval as usize + 16,
    };
    let end = unstuff(stream.src, scan.data, most, bytes, segments)?;
    Ok((Restarts::new(bytes, segments, stream.interval), end))
}
