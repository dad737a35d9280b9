"""Writes the Helm chart in helm/redbatch from what kustomize renders from k8s/: `make chart`. A test checks it.

A few combinations of overlays and components are rendered (`scenarios`). Where their objects differ, the template has a
condition (`merge`); where a user has a choice (`values`), it has a value; all else is literally that of k8s/.

- chart: all files of the chart, by path.
- documents: Chart.yaml, values.yaml, values.schema.json and README.md.
- kustomize: renders many combinations in one run of kubectl.
- mark: puts values of the chart into objects, and finds their defaults.
- merge: one tree of the objects of all combinations, with conditions.
- nodes: what such a tree has besides objects: values and conditions.
- scenarios: the combinations, and the values of the chart that choose one.
- template: writes a tree as a template of Helm.
- value_table: the values of the chart.
- values: what a value is, and where it stands in objects.
"""
