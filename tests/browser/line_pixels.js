// Returns how many pixels of a chart have the colour of the first line: `chart` is set by the test.
((chart) => {
  const canvas = document.querySelector(`${chart} canvas`);
  const wanted = getComputedStyle(document.body).getPropertyValue("--line-1").trim().match(/[0-9a-f]{2}/g)
    .map((each) => parseInt(each, 16));
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4) found += wanted.every((each, index) => Math.abs(each - data[at + index]) < 9);
  return found;
})("CHART")
