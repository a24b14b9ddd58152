// Sets light or dark before the page is painted; without a choice the system's holds.
(() => {
  const kept = localStorage.getItem("theme");
  if (kept) document.documentElement.dataset.theme = kept;
})();
