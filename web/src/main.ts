import { mount } from 'svelte';
import App from './App.svelte';
import './app.css';
import { session } from './lib/session.svelte';

const target = document.getElementById('app');
const redeem = () => session.redeem().catch(() => undefined);
// A link that is pasted into an open tab changes the fragment only, and loads nothing.
addEventListener('hashchange', () => void redeem());
// The token first: a view that is shown without it would ask for one.
void redeem().then(() => target && mount(App, { target }));
