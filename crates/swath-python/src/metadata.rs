//! Converts metadata of a file to Python dictionaries, and back.

use pyo3::{
    prelude::*,
    types::{PyDict, PyList, PyTuple},
};
use swath::{
    Band, Dataset, Error, Georeference, Metadata, SampleType,
    describe::{MaskKind, facts, number::Exact},
    geo::{Crs, Gcp, GeoTransform, Nodata, Rpc, gdal_xml::Domain, nodata::nodata_text, parse_user},
    gpu::DeviceReport,
};

use crate::{errors, options::text};

/// Returns a reference system as a dictionary.
pub fn crs_to_dict<'py>(py: Python<'py>, crs: &Crs) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("wkt", crs.wkt2.as_deref())?;
    dict.set_item("epsg", crs.epsg)?;
    dict.set_item("code", crs.code())?;
    dict.set_item("name", &crs.name)?;
    Ok(dict)
}

fn domains<'py>(py: Python<'py>, found: &[Domain]) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    for domain in found {
        let items = PyDict::new(py);
        for (key, value) in &domain.items {
            items.set_item(key, value)?;
        }
        all.set_item(&domain.name, items)?;
    }
    Ok(all)
}

fn number<'py>(py: Python<'py>, value: Exact) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Exact::Int(value) => value.into_pyobject(py)?.into_any(),
        Exact::Float(value) => value.into_pyobject(py)?.into_any(),
    })
}

fn band<'py>(py: Python<'py>, band: &Band, sample: SampleType) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("description", band.description.as_deref())?;
    dict.set_item("unit", band.unit.as_deref().filter(|unit| !unit.is_empty()))?;
    dict.set_item("scale", band.scale)?;
    dict.set_item("offset", band.offset)?;
    let nodata = band.nodata.as_ref().and_then(|nodata| facts::nodata(nodata, sample));
    dict.set_item("nodata", nodata.map(|value| number(py, value)).transpose()?)?;
    dict.set_item("color", &band.color)?;
    dict.set_item("tags", domains(py, &band.domains)?)?;
    Ok(dict)
}

fn rpc_to_dict<'py>(py: Python<'py>, rpc: &Rpc) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in rpc.scalars() {
        dict.set_item(name.to_ascii_lowercase(), value)?;
    }
    for (name, values) in rpc.polynomials() {
        dict.set_item(name.to_ascii_lowercase(), values.to_vec())?;
    }
    Ok(dict)
}

fn gcps<'py>(py: Python<'py>, found: &[Gcp]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for gcp in found {
        let dict = PyDict::new(py);
        dict.set_item("id", &gcp.id)?;
        dict.set_item("col", gcp.pixel)?;
        dict.set_item("row", gcp.line)?;
        dict.set_item("x", gcp.x)?;
        dict.set_item("y", gcp.y)?;
        dict.set_item("z", gcp.z)?;
        list.append(dict)?;
    }
    Ok(list)
}

/// Reads from the file what [`to_dict`] needs; the dataset caches its metadata.
pub fn fetch(dataset: &Dataset) -> Result<Masks, Error> {
    dataset.metadata();
    Ok(Masks { of_bands: MaskKind::of_bands(dataset)?, soft: dataset.has_soft_mask()? })
}

/// How the bands of a file mark nodata, and whether its mask says how opaque a pixel is.
pub struct Masks {
    of_bands: Vec<MaskKind>,
    soft: bool,
}

/// Returns the metadata of a file as a dictionary; [`fetch`] comes first.
pub fn to_dict<'py>(py: Python<'py>, dataset: &Dataset, masks: &Masks) -> PyResult<Bound<'py, PyDict>> {
    let metadata = dataset.metadata();
    let Georeference { crs, transform, gcps: points, gcp_crs, rpc, keys, .. } = &metadata.georeference;
    let (sample, main) = (dataset.sample(), dataset.main());
    let dict = PyDict::new(py);
    let shown = crs.as_ref().map(|crs| crs_to_dict(py, keys.crs_as_gdal_reports(crs))).transpose()?;
    dict.set_item("crs", shown)?;
    dict.set_item("transform", transform.map(|transform| PyTuple::new(py, transform.to_affine())).transpose()?)?;
    let stated = metadata.domains.iter().find(|domain| domain.name.is_empty());
    dict.set_item("area_or_point", stated.and_then(|domain| domain.get("AREA_OR_POINT")))?;
    dict.set_item("gcps", gcps(py, points)?)?;
    dict.set_item("gcp_crs", gcp_crs.as_ref().map(|crs| crs_to_dict(py, crs)).transpose()?)?;
    dict.set_item("rpcs", rpc.as_ref().map(|rpc| rpc_to_dict(py, rpc)).transpose()?)?;
    dict.set_item("tags", domains(py, &metadata.domains)?)?;
    let bands = PyList::empty(py);
    for found in &metadata.bands {
        bands.append(band(py, found, sample)?)?;
    }
    dict.set_item("bands", bands)?;
    dict.set_item("palette", metadata.palette.iter().map(|[r, g, b]| (*r, *g, *b)).collect::<Vec<_>>())?;
    let structure = PyDict::new(py);
    for (key, value) in &metadata.image_structure {
        structure.set_item(key, value)?;
    }
    dict.set_item("image_structure", structure)?;
    dict.set_item("interleave", facts::interleave(main))?;
    dict.set_item("compression", facts::compress(main))?;
    dict.set_item("predictor", facts::predictor(main))?;
    dict.set_item("photometric", facts::photometric(main))?;
    dict.set_item("bits", main.layout().bits)?;
    let flags = masks.of_bands.iter().map(|mask| mask.flags().to_vec()).collect::<Vec<_>>();
    dict.set_item("mask_flags", flags)?;
    dict.set_item("soft_mask", masks.soft)?;
    dict.set_item("problems", &metadata.problems)?;
    dict.set_item("nodata_problem", metadata.nodata_problem.as_deref())?;
    dict.set_item("side_files", &metadata.side_files)?;
    Ok(dict)
}

/// Returns the report of a GPU as a dictionary.
pub fn report_to_dict(py: Python<'_>, report: &DeviceReport) -> PyResult<Py<PyAny>> {
    let dict = PyDict::new(py);
    let counters = &report.counters;
    dict.set_item("device", &report.device)?;
    dict.set_item("storage", report.storage)?;
    dict.set_item("notices", &report.notices)?;
    for (name, value) in [
        ("device_tiles", report.device_tiles),
        ("host_tiles", report.host_tiles),
        ("pieces", report.pieces),
        ("batches", report.batches.into()),
        ("buffers", counters.buffers),
        ("allocations", counters.allocations),
        ("allocated_bytes", counters.allocated_bytes),
        ("pinned_allocations", counters.pinned_allocations),
        ("uploads", counters.uploads),
        ("uploaded_bytes", counters.uploaded_bytes),
        ("downloads", counters.downloads),
        ("downloaded_bytes", counters.downloaded_bytes),
        ("launches", counters.launches),
        ("synchronisations", counters.synchronisations),
        ("library_waits", counters.library_waits),
        ("peak_bytes", counters.peak_bytes),
        ("storage_reads", counters.storage_reads),
        ("storage_waits", counters.storage_waits),
        ("storage_bytes", counters.storage_bytes),
    ] {
        dict.set_item(name, value)?;
    }
    Ok(dict.into_any().unbind())
}

/// Returns an item that exists and is not `None`.
fn item<'py>(dict: &Bound<'py, PyDict>, key: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    Ok(dict.get_item(key)?.filter(|value| !value.is_none()))
}

fn value<'py, T: for<'a> FromPyObject<'a, 'py, Error = PyErr>>(
    dict: &Bound<'py, PyDict>,
    key: &str,
) -> PyResult<Option<T>> {
    item(dict, key)?.map(|value| value.extract::<T>()).transpose()
}

fn items(dict: &Bound<'_, PyDict>) -> PyResult<Vec<Domain>> {
    let mut found = Vec::new();
    for (name, entries) in dict.iter() {
        let entries = entries.cast_into::<PyDict>()?;
        let items = entries.iter().map(|(key, value)| Ok((text(&key)?, text(&value)?))).collect::<PyResult<_>>()?;
        found.push(Domain { name: text(&name)?, items });
    }
    Ok(found)
}

fn dict_of<'py>(value: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    Ok(value.cast_into::<PyDict>()?)
}

fn crs_of(py: Python<'_>, text: &str) -> PyResult<Crs> {
    parse_user(text).map_err(|detail| errors::usage(py, &format!("crs: {detail}")))
}

fn gcp_of(dict: &Bound<'_, PyDict>, number: usize) -> PyResult<Gcp> {
    let coordinate = |key: &str| -> PyResult<f64> { Ok(value(dict, key)?.unwrap_or(0.0)) };
    Ok(Gcp {
        id: item(dict, "id")?.map_or_else(|| Ok(number.to_string()), |id| text(&id))?,
        pixel: coordinate("col")?,
        line: coordinate("row")?,
        x: coordinate("x")?,
        y: coordinate("y")?,
        z: coordinate("z")?,
    })
}

fn rpc_of(dict: &Bound<'_, PyDict>) -> PyResult<Rpc> {
    let py = dict.py();
    let one = |key: &str| -> PyResult<f64> {
        let default = if key.starts_with("err_") { Some(-1.0) } else { None };
        value(dict, key)?.or(default).ok_or_else(|| errors::usage(py, &format!("rpcs: {key} is missing")))
    };
    let many = |key: &str| -> PyResult<[f64; 20]> {
        let found: Vec<f64> = value(dict, key)?.unwrap_or_default();
        <[f64; 20]>::try_from(found)
            .map_err(|found| errors::usage(py, &format!("rpcs: {key} has {} terms instead of 20", found.len())))
    };
    Ok(Rpc {
        err_bias: one("err_bias")?,
        err_rand: one("err_rand")?,
        line_off: one("line_off")?,
        samp_off: one("samp_off")?,
        lat_off: one("lat_off")?,
        long_off: one("long_off")?,
        height_off: one("height_off")?,
        line_scale: one("line_scale")?,
        samp_scale: one("samp_scale")?,
        lat_scale: one("lat_scale")?,
        long_scale: one("long_scale")?,
        height_scale: one("height_scale")?,
        line_num_coeff: many("line_num_coeff")?,
        line_den_coeff: many("line_den_coeff")?,
        samp_num_coeff: many("samp_num_coeff")?,
        samp_den_coeff: many("samp_den_coeff")?,
    })
}

/// Returns a nodata value if samples of this type can have it.
fn nodata_of(given: &Bound<'_, PyAny>, sample: SampleType) -> PyResult<Nodata> {
    let py = given.py();
    // Integers keep every digit; other numbers are floats in Python too.
    let text = match given.extract::<i128>() {
        Ok(whole) => whole.to_string(),
        Err(_) => nodata_text(given.extract::<f64>()?),
    };
    let nodata = Nodata::parse(text.as_bytes());
    nodata.filter(|nodata| nodata.for_dtype(sample).is_some()).ok_or_else(|| {
        errors::usage(py, &format!("nodata {text} is not a value of {sample}; choose one, or another dtype"))
    })
}

/// Returns the metadata of a file to write, from the dictionary that `Found.native` in `_metadata.py` makes.
pub fn of_dict(given: &Bound<'_, PyDict>, count: u16, sample: SampleType) -> PyResult<Metadata> {
    let py = given.py();
    let mut metadata = Metadata::default();
    let georeference = &mut metadata.georeference;
    if let Some(text) = value::<String>(given, "crs")? {
        georeference.crs = Some(crs_of(py, &text)?);
    }
    if let Some(transform) = value::<[f64; 6]>(given, "transform")? {
        georeference.transform = Some(GeoTransform::from_affine(transform));
    }
    let kind: Option<String> = value(given, "area_or_point")?;
    georeference.pixel_is_point = kind.is_some_and(|kind| kind.eq_ignore_ascii_case("point"));
    if let Some(list) = item(given, "gcps")? {
        for (index, gcp) in list.try_iter()?.enumerate() {
            georeference.gcps.push(gcp_of(&dict_of(gcp?)?, index + 1)?);
        }
    }
    if let Some(text) = value::<String>(given, "gcp_crs")? {
        georeference.gcp_crs = Some(crs_of(py, &text)?);
    }
    if let Some(rpc) = item(given, "rpcs")? {
        georeference.rpc = Some(rpc_of(&dict_of(rpc)?)?);
    }
    if let Some(tags) = item(given, "tags")? {
        metadata.domains = items(&dict_of(tags)?)?;
    }
    let nodata = item(given, "nodata")?.map(|nodata| nodata_of(&nodata, sample)).transpose()?;
    metadata.bands = vec![Band { nodata, ..Band::default() }; count.into()];
    if let Some(list) = item(given, "bands")? {
        for (found, band) in list.try_iter()?.zip(&mut metadata.bands) {
            let found = dict_of(found?)?;
            band.description = value(&found, "description")?;
            band.unit = value(&found, "unit")?;
            band.scale = value(&found, "scale")?;
            band.offset = value(&found, "offset")?;
            if let Some(color) = value(&found, "color")? {
                band.color = color;
            }
            if let Some(tags) = item(&found, "tags")? {
                band.domains = items(&dict_of(tags)?)?;
            }
        }
    }
    if let Some(palette) = value::<Vec<(u16, u16, u16)>>(given, "palette")? {
        metadata.palette = palette.into_iter().map(|(r, g, b)| [r, g, b]).collect();
    }
    Ok(metadata)
}
