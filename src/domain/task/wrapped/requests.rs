//! What one pod asks for, as Kueue counts it: its containers together or its largest init container, whichever is more,
//! and its overhead. Limits stand in for requests that are not given.

use std::collections::BTreeMap;

use serde_json::Value;

use fedq_values::{
    ids::ResourceName,
    quantity::{Amount, Quantity},
};

type Requests = BTreeMap<ResourceName, i64>;

/// `spec`: of the pod. What is asked for in no amount is left out, since no queue need cover it.
pub fn of_pod(spec: &Value) -> Result<Requests, String> {
    let mut total = Requests::new();
    for container in list(spec, "containers") {
        add(&mut total, &of_container(container)?);
    }
    let (mut sidecars, mut largest) = (Requests::new(), Requests::new());
    for container in list(spec, "initContainers") {
        let mut own = of_container(container)?;
        if container["restartPolicy"] == "Always" {
            add(&mut sidecars, &own);
            own.clone_from(&sidecars);
        } else {
            add(&mut own, &sidecars);
        }
        raise(&mut largest, &own);
    }
    add(&mut total, &sidecars);
    raise(&mut total, &largest);
    // Requests of the pod itself replace what its containers sum up to.
    total.extend(of_container(spec)?);
    add(&mut total, &amounts(&spec["overhead"])?);
    total.retain(|_, units| 0 < *units);
    Ok(total)
}

fn of_container(container: &Value) -> Result<Requests, String> {
    let mut requests = amounts(&container["resources"]["limits"])?;
    requests.extend(amounts(&container["resources"]["requests"])?);
    Ok(requests)
}

fn amounts(map: &Value) -> Result<Requests, String> {
    let amount = |(name, value): (&String, &Value)| {
        let resource = ResourceName::new(name).map_err(|error| error.to_string())?;
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return Err(format!("{name}: {value} is no quantity")),
        };
        let quantity = Quantity::parse(&text).map_err(|error| error.to_string())?;
        let amount = Amount::held(quantity, &resource);
        Ok((resource, amount.units()))
    };
    map.as_object().into_iter().flatten().map(amount).collect()
}

fn list<'v>(spec: &'v Value, key: &str) -> &'v [Value] {
    spec[key].as_array().map_or(&[], Vec::as_slice)
}

fn add(total: &mut Requests, more: &Requests) {
    for (resource, units) in more {
        let sum = total.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(*units);
    }
}

fn raise(total: &mut Requests, floor: &Requests) {
    for (resource, units) in floor {
        let most = total.entry(resource.clone()).or_default();
        *most = (*most).max(*units);
    }
}
