// Sets light or dark before the page is painted; without a choice the system's holds.
(() => {
  try {
    const kept = localStorage.getItem("theme");
    if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  } catch {
    // A browser that keeps nothing: the system's holds.
  }
})();
